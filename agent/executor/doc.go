// Package executor is the executor protocol, version 1: the task that an
// executor reads, the messages that it sends, how an end is read from them,
// and a kit for executors written in Go (Serve). docs/executor-protocol.md
// says the same for people and other languages.
//
// The messages are claims of the least trusted process there is. Everything
// that reads them goes through Intake, which holds the bounds. The package
// starts no process; shim does, and conformance tries executors with it.
//
// A change that an executor could notice is a new protocol version.
package executor
