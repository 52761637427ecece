// Package lintrules holds the test that the repository's lint configuration
// catches what it is there to catch. It has no other content.
package lintrules
