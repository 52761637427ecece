// Package examplepackages holds the packages of the examples, for the demo and for
// tests.
package examplepackages

import "embed"

// Hello is the folder hello: a playbook for the runner's own machine.
//
//go:embed hello
var Hello embed.FS
