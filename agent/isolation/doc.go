// Package isolation holds what the kernel offers for keeping one executor
// apart and for proving that all of it is gone: process identities, the walk
// over a process tree, limits set in the child before exec, a private cgroup,
// the boot-time clock, the engines that make namespaces (Box), and the look from
// inside at what they made (Promise).
//
// It knows nothing of attempts, protocols or the agent. The package shim puts
// the parts together. Linux only.
//
// Nothing here may report a level that was not applied. A new engine is a method
// of Box and a row in the tests of shim and underfire.
package isolation
