// Package eventstore is the contract of the ledger: append-only streams of
// hash-chained events, and one global feed over all of them.
//
// Two implementations exist, postgres (the product) and memory (fast tests);
// storetest runs one conformance suite on both. The package itself holds only
// what both must agree on to the byte: the envelope, its hash, event ids, and
// the shape of loads and appends.
//
// What a store promises:
//
//   - Durability: Append returns only after the events and the inline rows are
//     durable together. A *ConflictError, ErrInvalid, ErrRowTaken and ErrTooLarge
//     say that nothing was stored. Any other error, ErrUnavailable and that of a
//     context included, is indefinite: the events may have been stored. The
//     caller repeats the command under the same command id, and Load tells.
//   - Order: versions of one stream are 1..n without gap or repeat. The feed
//     delivers every committed event exactly once in feed order, and the events
//     of one stream in version order.
//   - Idempotence: an event's id is UUIDv5(command id, index), unique over the
//     whole store, so a command takes effect once whatever its expected version.
//   - Retries: a store never decides again. A conflict goes back to the caller,
//     who loads and decides anew.
package eventstore
