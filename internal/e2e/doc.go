// Package e2e tests the whole path on real parts: PostgreSQL, an S3 server, the
// service, agents with real shims and executors. It holds tests only.
//
// A world (world_test.go) is one deployment with a database of its own. Every test
// ends with checkEverything (check_test.go): the ledger verifies, every projection
// equals its rebuild, every bundle is in object storage under its digest, and
// nothing that the test started is left. Crash points and what must hold after
// each stand in crash_test.go.
package e2e
