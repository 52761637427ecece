// Package isolation holds what the kernel offers for keeping one executor
// apart and for proving that all of it is gone: process identities, the walk
// over a process tree, limits set in the child before exec, a private cgroup,
// and the boot-time clock.
//
// It knows nothing of attempts, protocols or the agent. The package shim puts
// the parts together. Linux only.
//
// The one level that exists here is "process": own session, limits, no new
// privileges, a private cgroup where one can be made. "sandbox" and
// "container" are further levels beside it; nothing here may report a level
// that was not applied.
package isolation
