// Package e2e tests the whole path on real parts: PostgreSQL, an S3 server, the
// service, agents with real shims and executors. It holds tests only.
//
// A world (world_test.go) is one deployment with a database of its own. Every test
// ends with checkEverything (check_test.go): the ledger verifies, every projection
// equals its rebuild, every bundle is in object storage under its digest, and
// nothing that the test started is left. Crash points and what must hold after
// each stand in crash_test.go.
//
// A fleet (fleet_test.go) is replicas and runners as processes behind a TCP
// balancer, under a load of chats: jobs of an executor whose every byte is known
// beforehand (chatter_test.go). binary_test.go runs the product's own binary, and
// releases_test.go the one of the commit before beside it.
package e2e
