// Package commands carries out what callers ask for: load the stream, let the
// domain decide, append. One file per command.
//
// Every command has an id and the digest of its request. Repeating it has one
// effect and gives the first answer; the same id with another request is a
// conflict. A clash of versions is decided again on fresh state, a bounded number
// of times. Nothing here knows HTTP, and nothing here keeps state of its own but
// the queue that orders commands on one stream within this process.
//
// Errors are *domain.Error where the caller can act on them; errors of the
// database satisfy errors.Is(err, eventstore.ErrUnavailable), and the command may
// then have taken effect: repeating it under the same id tells.
package commands
