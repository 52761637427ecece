// Package pgtest gives tests real PostgreSQL databases.
//
// NewPool and URL share one server per test binary, which does not wait for
// the disk, and give each test a migrated database of its own, copied from a
// template in some tens of milliseconds. StartServer is for crash tests: a
// server that waits for the disk and may be killed.
//
// A package that uses it calls Main from TestMain, so that the shared server
// is stopped in order and leaks are reported; without that call, and after a
// panic or a timeout, the kernel ends the server with the test binary.
//
// Only _test files may import this package.
package pgtest
