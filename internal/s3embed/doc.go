// Package s3embed is the S3 server of the embedded default: in the process, in a
// folder, on a loopback port, with random keys that every request must be signed
// with.
//
// The S3 protocol comes from gofakes3. Around it stand two parts of ours, because
// its own backends hold a lock over the network, keep uploads in memory, overwrite
// in place and check no signature:
//
//   - the gate checks Signature Version 4 (headers, presigned, and the chunked
//     forms), the body's digests and checksums, and lets only the operations
//     through that are named in operations.go;
//   - the folder stores each object as one file that appears whole or not at all,
//     synced before the request is answered.
//
// The other candidate was versitygw as a library. It has everything and more, but
// it brings 279 packages beyond the standard library (message brokers, LDAP, cloud
// SDKs) where this one brings a handful, takes minutes to compile, allows one
// server per process, and stores keys as paths, so that "a" and "a/b" exclude each
// other. It is the tests' second server instead, see internal/s3test; one suite
// runs on both.
//
// Left out on purpose, and answered 501: multipart uploads (an object is one PUT
// of at most 5 GiB), copies, versions, ACLs and browser forms. One process owns a
// folder; a second one is refused.
package s3embed
