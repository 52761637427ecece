// Package broken takes single guards out of a build with the tag broken, to show
// that the simulator and the history checker notice. Without the tag On is
// constant false, and the compiler drops what depends on it.
//
// A known-bad build takes the guard's name from the environment variable
// EXECUTION_PLANE_BROKEN; a test may name another with Use.
package broken
