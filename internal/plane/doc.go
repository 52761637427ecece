// Package plane assembles one replica of the service: database pool, event store,
// commands, dispatcher, artifact-worker and API, by the modules it is told to run.
// The binary and the end-to-end tests start the same thing.
package plane
