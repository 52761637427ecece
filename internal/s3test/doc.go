// Package s3test runs a real S3 server, as a process of its own, for tests of
// this project. The binary is built by `make peers-s3` from the module in
// test/peers/s3 and lives in the user's cache folder; a test that finds none
// fails and says so.
package s3test
