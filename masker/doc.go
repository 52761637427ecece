// Package masker stands in front of every sink of an attempt: log spool, control
// messages, artifacts, events. It depends on nothing of this project, so that
// runner, shim and service can all use the same one.
//
// A Set holds what must not leave the runner. Today there is one Set, the empty
// one, because secrets are not resolved yet; with it every byte passes unchanged
// and nothing is counted. A Set with patterns must keep the contract below, which
// its callers already rely on.
//
// Writer, one per stream and used by one goroutine at a time:
//
//   - Bytes: it works on bytes, never on lines or text. What is no part of a
//     masked value comes out unchanged and in order, NUL and invalid UTF-8 too.
//   - Chunking: the output depends on the bytes written, not on how they were cut
//     into writes.
//   - Streaming: after each Write, everything is passed on except the longest
//     suffix that could still become part of a masked value. No timer releases
//     that suffix. With the empty Set nothing is ever held back.
//   - Close passes on, masked where it must be, what was held back. It does not
//     close the destination. A second Close does nothing; a Write after Close is
//     ErrClosed.
//   - Errors: Write takes all of p or returns an error. After an error of the
//     destination the stream is broken: every later Write and Close returns that
//     error, because bytes may be lost and the caller must not go on as if not.
//   - Memory: p is not kept after Write returns.
//   - Counts are by secret reference and never hold a value.
package masker
