// Package memory is the event store in memory, for fast tests of what stands on
// it. It keeps the contract of package eventstore to the letter, is stricter
// than Postgres about the shape of inline rows, and can be made to fail before
// or after an append took effect. It is not durable and not for production.
package memory
