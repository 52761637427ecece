// Package bundle is the format of everything an attempt leaves behind: log
// frames and chunks, object keys, and the manifest that lists them.
//
// The package is pure: no I/O except through readers that the caller hands in,
// no clock, no randomness, and no dependency beyond the standard library and
// uuid. The ledger, the runner agent and the artifact worker must agree on every
// byte made here, so a change of any encoding is a new schema number, never an
// edit of an old one. Golden files under testdata keep each version.
//
// Words: a frame is {time, bytes} of one stream. A chunk is a run of frames of
// one stream, stored as one object. Offsets and lengths of a log count content
// bytes, which is what a reader of the log sees; frame headers never count.
package bundle
