// Package postgres is the event store on Postgres: the append statement and its
// group commit, reads, the sequencer that writes the feed, and row leases.
//
// All SQL on the tables of migrations/0001_event_store.sql stands here. Every
// statement of a Store goes out in one round trip together with settings that
// hold for it alone (see pipeline.go). Invariants that a change must keep:
//
//   - The head row is locked and its version checked before a position is taken,
//     so that positions of one stream grow with its versions.
//   - Locks are taken in one order: heads by stream id, events, texts by digest,
//     then each table in the order given to Open, by key.
//   - A tick locks the sequencer's row first and takes its snapshot afterwards.
//   - NOTIFY is sent by the tick, never by an append.
package postgres
