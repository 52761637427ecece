// Package vaulttest runs a real Vault server, as a process of its own, for tests of
// this project: the server's own core with KV, AppRole, tokens, policies, leases and
// audit, and one engine of the test peer's own, accounts, that makes dynamic
// secrets. The binary is built by `make peers-vault` from the module in
// test/peers/vault and lives in the user's cache folder; a test that finds none
// fails and says so.
//
// What may be touched: nothing here knows the packages under test.
package vaulttest
