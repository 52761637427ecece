// Package proctest lets tests prove that nothing they started is left: no
// goroutine of this process, no process below it.
//
// Only _test files and other test packages may import it. It reads /proc and
// needs Linux.
package proctest
