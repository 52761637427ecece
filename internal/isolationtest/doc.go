// Package isolationtest makes on this machine what tests of isolation need: root file
// system folders of a few programs, and the engines, which must be installed.
package isolationtest
