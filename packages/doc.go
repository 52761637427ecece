// Package packages makes and opens packages of playbooks: a tar in zstd or gzip
// with a package.yaml that says what is in it, pinned by the SHA-256 of its bytes.
//
//	reference.go  <name>@sha256:<hex>
//	manifest.go   package.yaml; cover.go what of the package it lists
//	limits.go     what a package may take; refused.go what is wrong with one
//	stream.go     decompression under limits
//	name.go, index.go, links.go  names, collisions, and where links lead
//	read.go       the one reader, and Inspect; unpack.go is its other use
//	tree.go       the digest of an unpacked package, to see that it is unchanged
//	build.go      the way back: a folder to a file, always the same bytes
//
// What must hold: whatever the bytes are, nothing is written outside of the folder
// that was named, memory and disk stay within Limits, and a package that is refused
// leaves nothing. Inspect and Unpack take and refuse the same packages, for the same
// reasons. Nothing of a package is run or interpreted here but package.yaml.
package packages
