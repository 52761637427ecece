// Package conformance tries an executor without a service: RunOnce runs one
// task under a real shim, Check judges an executor by what the protocol asks
// of it. Both start the executor exactly as a runner would.
//
// It is behind `execution-plane executor run` and `execution-plane executor
// conformance`. A new check is one entry in checks.go and one line in
// docs/executor-protocol.md.
package conformance
