// Package masker stands in front of every sink of an attempt: log spool, control
// messages, artifacts, events. It depends on nothing of this project, so that
// runner, shim and service can all use the same one.
//
// A Set holds what must not leave the runner. Add takes a secret apart (JSON, YAML,
// .env, connection strings, lines) and makes patterns of the whole and of each part
// that is long and unusual enough; what is not is named in the Report. With the
// Empty Set every byte passes unchanged and nothing is counted.
//
// How a stream is read. One Aho-Corasick automaton holds the plain texts without
// their white space, the symbols of base64, base32 and hex that depend on the text
// alone whatever stands beside it, and lists of decimal bytes. Threads follow every
// way to read the stream: escapes (percent, backslash, entity, quoted-printable,
// doubled quotes) are read as what they stand for, up to four in each other; colour
// codes, line ends with their indentation, NUL bytes, zero-width characters and
// overstrikes are read as nothing; hex may have separators and capitals. So any mix
// of these is found, without a pattern for it. Text in which nothing can begin is
// skipped by a filter over the next six bytes.
//
// What is not found: a value that is reversed, compressed, encrypted, hashed, in
// another case, in an alphabet not named above, or shown in part; one whose
// characters are set apart by blanks, quotes or U+; base64 that a program puts
// together from quoted pieces; a hex dump with offsets and a text column.
//
// A masked span becomes a mark with the secret's public name, or one without where
// that would hold, make or be a part of a secret. Hits that touch share one mark.
//
// Writer, one per stream and used by one goroutine at a time:
//
//   - Bytes: it works on bytes, never on lines or text. What is no part of a
//     masked value comes out unchanged and in order, NUL and invalid UTF-8 too.
//   - Chunking: the output depends on the bytes written, not on how they were cut
//     into writes.
//   - Streaming: after each Write, everything is passed on except the longest
//     suffix that could still become part of a masked value. No timer releases
//     that suffix. A chain of overlapping values does not lengthen it. With the
//     empty Set nothing is ever held back.
//   - Close passes on, masked where it must be, what was held back: six bytes or
//     more of the beginning of a value are masked. It does not
//     close the destination. A second Close does nothing; a Write after Close is
//     ErrClosed.
//   - Errors: Write takes all of p or returns an error. After an error of the
//     destination the stream is broken: every later Write and Close returns that
//     error, because bytes may be lost and the caller must not go on as if not.
//   - Secrets that are added while a stream runs are masked from the next Write
//     on; what is held back is read again with them.
//   - Memory: p is not kept after Write returns. A Set needs about 12 bytes for
//     each byte of its patterns, 30 to 40 KiB for a token, a few MiB for a key of
//     two KiB, below 150 MiB for one of a MiB.
//   - Counts are by secret reference and never hold a value.
package masker
