// Package ledger proves what the event store holds: that every stream's chain is
// whole, that every head is the fold of its events, that the feed has no hole,
// and that the inline tables are what the events say.
//
// The chain is checked event by event, never by its ends alone. It finds any
// change, swap or removal inside a stream. A truncated tail, a chain rewritten
// whole, or an old backup needs a checkpoint kept outside the database; the tree
// over the feed will give one, and until then this package says what it cannot see.
package ledger
