// Package peers finds and runs the servers that tests run against, each built from
// a folder of its own in test/peers by `make peers-<folder>` into the user's cache
// folder. What is particular to one server stands in vaulttest, s3test and kafkatest.
//
// What may be touched: nothing here knows a server, a package under test or the
// package testing.
package peers
