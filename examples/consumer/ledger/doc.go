// Package ledger checks what the execution plane publishes to Kafka, from the
// records alone: it drops what comes again, finds gaps, and verifies the hash
// chain. It knows no Kafka client, no database and no package of the service: a
// record is a topic, a key, a value and headers, and everything here is done as
// docs/events.md writes it down. Copy it.
//
// Records come at least once and, within one topic, in the order of versions for
// each stream. That gives two ways to drop what comes again, and both are right:
//
//   - By event id. It never changes, so a set of the ids that were handled knows
//     every repetition. The set grows with the topic; one that is cut to the last n
//     ids forgets, and a replay of old history is handled again.
//   - By version. Within a topic a stream's versions only grow, so whatever is not
//     newer than the last one of its stream came before. One number for each stream
//     is enough, however old the repetition. Check does this.
//
// The second way needs care in one case: a restored database has lost its tail and
// writes other events with the same versions. Check keeps marks of the last few
// records of a stream and tells a repetition from another event by its hash.
package ledger
