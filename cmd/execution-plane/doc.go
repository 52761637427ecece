// Command execution-plane is the service, its runner, and the tools around them.
//
// One file holds one verb. This package is the only place that reads flags, the
// environment and configuration files; everything else is told.
//
// Exit codes are stable: see exit.go and docs/api.md.
package main
