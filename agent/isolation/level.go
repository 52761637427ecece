package isolation

import "slices"

// The levels, weakest first. Each keeps what the weaker ones keep.
const (
	// LevelProcess: a session of its own, limits, no new privileges, the proof of
	// the tree's end.
	LevelProcess = "process"
	// LevelSandbox: also namespaces of its own over the machine's programs, and
	// nothing else of the machine.
	LevelSandbox = "sandbox"
	// LevelContainer: the same over a root file system of its own.
	LevelContainer = "container"
)

// Levels lists the levels, weakest first.
func Levels() []string { return []string{LevelProcess, LevelSandbox, LevelContainer} }

// Rank orders the levels; -1 for what is no level.
func Rank(level string) int { return slices.Index(Levels(), level) }

// What an executor can reach of the network.
const (
	// NetworkHost is the machine's own network.
	NetworkHost = "host"
	// NetworkNone is a network of its own with nothing but a loopback device.
	NetworkNone = "none"
)
