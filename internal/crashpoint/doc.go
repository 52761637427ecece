// Package crashpoint holds named places between two durable steps where a test
// may end the process as a power cut would.
//
// A place is one line, crashpoint.Here("log.stored") or crashpoint.At("append.after",
// event). Nothing happens there unless the environment variable Env names the
// point when the process starts; then the process sends itself SIGKILL, so no
// deferred call runs and no buffer is flushed. Off, a place costs one atomic load.
//
// A new durable step gets a point before and after it, and a row in the table of
// internal/e2e/crash_test.go.
package crashpoint
