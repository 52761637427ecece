// Package ledger proves what the event store holds: that every stream's chain is
// whole and ends where it says so, that every head is the fold of its events, that
// the texts which events name are theirs or were erased, that the feed has every
// event it should have, in order, and that the inline tables are what the events
// say. It names what is wrong and goes on.
//
// The chain is checked event by event, never by its ends alone. It finds any
// change, swap or removal inside a stream. A truncated tail, a chain rewritten
// whole, or an old backup needs a checkpoint kept outside the database; the tree
// over the feed will give one, and until then this package says what it cannot see.
package ledger
