// Package schemas holds the JSON Schema of every event's payload, one file for
// each type and schema number, as the service serves them and ce_dataschema of a
// Kafka record names them. docs/asyncapi.yaml points at the same files.
//
// Nothing here is written by hand. The shape of a payload comes from its Go type
// in package domain, the words and the closed sets of values from the tables of
// docs/events.md: change those, then
//
//	go test ./docs/schemas -run TestGenerated -update
//
// A test compares what is committed with what would be generated. A file of an
// older schema number is never generated again and never changed.
package schemas
