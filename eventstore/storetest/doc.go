// Package storetest holds the conformance suite of event stores: what the
// contract in package eventstore promises, as tests that both implementations
// pass. A new promise of the contract gets its test here first.
package storetest
