// Package shim runs one executor under a parent process of its own, the shim,
// which applies isolation, owns the deadline, ends the whole process tree, and
// proves that it is gone.
//
// The agent's side is Start and Process. The shim's side is Main, which the
// hidden verb "execution-plane shim" calls in a process of its own; it starts
// itself once more (the stage "exec") to set what must be set in the
// executor's process before exec. CleanUp ends and removes what a crashed
// agent left behind.
//
// In a sandbox or container there are two stages more: "engine" becomes the isolation
// engine (engine.go), and "inside" is the first process in what that made (inside.go).
// It looks whether it is what was promised, starts the stage "exec", and tells the
// shim over a socket on which the kernel says who writes. While an engine starts, stop,
// deadline and the agent's loss hold too (await.go).
//
// The two sides speak JSON lines over the shim's stdin and stdout (wire.go).
// They are always the same build, so these lines may change freely; the
// executor protocol may not.
//
// What holds the promise: the shim is a subreaper, so every orphan of the tree
// becomes its child, and wait4 answering ECHILD means that no process of the
// tree is left. Only what asks a daemon outside the tree to start something
// (a container engine, systemd, cron) escapes that.
//
// The shim's loop is one goroutine on the main thread. Keep it so: the parent
// death signal of the executor belongs to the thread that forked it.
package shim
