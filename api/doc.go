// Package api is the HTTP API: one route table (routes.go), and one handler file
// for each resource. Router, authorisation, OpenAPI document, documentation and
// tests all read the table.
//
// A handler is thin: it gets a request that is authenticated, authorised and
// decoded, calls commands, dispatch, artifacts or a read model through a small
// interface of ports.go, and encodes the answer. It decides nothing about
// attempts. An error goes back as it came; problem.go alone turns it into a
// status.
//
// A new route is: a row in the table, a method in its resource's file, a method
// in package client, a paragraph in docs/api.md, and
// "go test ./api -run TestOpenAPI -update". The tests say what was forgotten.
//
// gorilla/mux is used in router.go and nowhere else.
package api
