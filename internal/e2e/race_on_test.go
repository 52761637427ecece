//go:build race

package e2e_test

// raceDetector: everything is several times slower.
const raceDetector = true
