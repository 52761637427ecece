// Package artifacts is the artifact-worker: it takes log chunks and artifacts
// from runners into object storage, serves logs back, and seals each attempt's
// bundle. It never interprets a result; it guarantees that the result can be
// shown, downloaded and used as evidence.
//
// Order of durability: bytes are in object storage before the ledger names them,
// and the ledger names them before the runner is told so. Object keys carry the
// digest of their bytes and writes are conditional, so an orphan of a lost race
// harms nobody and no object ever changes.
//
// S3 itself is in artifacts/objects. The pure formats are in package bundle.
package artifacts
