// Package catchup runs catch-up projections: tables that follow the feed, a
// little behind it, each with a checkpoint of its own.
//
// A Runner reads the feed through watermill-sql's Subscriber, on the shared pool,
// with adapters of ours: the messages are the events themselves, nothing is
// stored twice, and nothing is created. The handler writes in the subscriber's
// transaction, which also moves the checkpoint: both are committed, or neither.
// So each event takes effect exactly once and in feed order, whatever dies when.
//
// Every replica may run every projection. The checkpoint's row is locked while a
// page is worked on; who finds it locked waits without a transaction.
//
// An event that cannot be applied is never skipped: the projection stands before
// it, tries again with growing pauses, and Status says why. An unknown type is
// such an event: a newer replica goes on from the same checkpoint.
//
// A new projection is a Projection value, a table in a migration, and its queries
// in package projections. Adapters (adapters.go) hold the only SQL here.
package catchup
