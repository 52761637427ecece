// Package objects keeps immutable objects in one bucket of an S3 server.
//
// What a Bucket promises:
//
//   - Immutability: a key is written once. Put and PresignPut are conditional
//     (If-None-Match: *), so of any number of writers one wins; the others succeed
//     if they brought the same bytes and get ErrDifferent if not.
//   - Digests: Put checks size and SHA-256 while it reads and never lets the last
//     byte go out if they differ, so that no server, however lax, stores wrong
//     bytes. The digest is signed with the request, sent as an S3 checksum, and
//     kept as user metadata. What came by a presigned URL counts only after
//     Verify.
//   - Durability: a nil error of Put means that the server acknowledged the whole
//     object. Any other error is indefinite; Put again with the same arguments is
//     safe and tells.
//   - Retries: one, at once, after a broken connection or a server error, if the
//     body can be sent again. ErrUnavailable is the caller's to retry later;
//     nothing else gets better by waiting.
//   - Memory: bodies are streamed as one PUT of known size, never as parts, so
//     that nothing is buffered and no half upload can be left behind. What has no
//     known size and digest goes through Spool first.
//
// Time limits: a connection must stand within 3 s and a whole request be answered
// within 60 s after its last byte; all else is bounded by the caller's context.
//
// Any S3 server with conditional PUT serves. The suite in this folder runs on
// the embedded one and on a real one.
package objects
