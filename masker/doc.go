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
// codes, line ends with their indentation and up to six signs of a margin (>, +, -,
// |, #, ~, *, /, │), NUL bytes, zero-width characters and overstrikes are read as
// nothing, and so is what joins two quoted strings (" + ", ", ") behind the first
// six bytes; hex may have separators and capitals, 0x, and the offsets and text
// column of a dump (xxd, hexdump -C, od -t x1). So any mix of these is found,
// without a pattern for it. Text in which nothing can begin is skipped by a filter
// over the next six bytes.
//
// What is not found: a value that is reversed, compressed, encrypted, hashed, in
// another case, in an alphabet not named above (base32hex, base85, uuencode, bits as
// xxd -b has them), in base64 thrice, or shown in part; one in other characters for
// the same text (NFD, full width); one whose characters are set apart by blanks,
// quotes, dots, dashes or U+ (od -c too), whose bytes change places (od -x, xxd -e)
// or are lists of octal numbers (od -t o1), an object of numbers (JSON of a
// Uint8Array) or backslashes with two hex digits as in LDAP; one with tabs in cat -A
// or percent signs doubled; one split into strings with changing quotes; the text
// column of xxd -b and xxd -e; base32 of UTF-16 with surrogates; one in base64
// whose lines have a time, a file name or a number in front of them (lines of a
// plain text are found then); encodings of lines that were wrapped at other widths
// than 76 in base64 and 60 in hex, or where the value does not begin the first line;
// one of fewer than six characters beside its white space where that is changed;
// of a secret above 4 KiB encodings of encodings, of lines too above 8 KiB, above
// 16 KiB base32, UTF-16 and decimal bytes, above 64 KiB what an encoding holds
// between two of its lines or fields.
//
// A masked span becomes a mark with the secret's public name, or one without where
// that would hold, make or be a part of a secret. Hits that touch share one mark.
//
// Fingerprints gives the independent scan keyed hashes of all this, MostPrints at
// most for a Set; Coverage tells what a secret too long for them is covered to. Words
// and encodings count in a run of 16 bytes of the value only, or all of a shorter
// one, so that one word of a passphrase in the base64 of an event is no leak. A weak
// value (Report.Weak: postgres, admin1, a user name) is masked and has no
// fingerprints: the scan would find it in the JobSpec of every job.
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
//     each byte of its patterns, up to 150 KiB for a token, 7 MiB for a key of
//     two KiB, 130 MiB for a MiB of PEM, below 200 MiB for a MiB of anything, and
//     as much again while that is added.
//   - Counts are by secret reference and never hold a value.
package masker
