// Package sshtest runs real OpenSSH servers for tests of this project, several
// at once, each with a root folder, host keys and processes of its own.
//
// A host is sshd inside bubblewrap: it sees the machine's /usr read-only, and
// everything else is a folder that the test can look into (Host.Path). It has its
// own process table, so that whatever a test leaves there ends with it. Its
// network is the machine's, on loopback. sudo and systemctl on it are small
// scripts in bin, which log what they were asked (Host.SudoLog) and keep the state
// of units in files.
//
// Started by root, a host lets in root or the ordinary user "tester"; started by
// an ordinary user, only that user, under the name "tester".
//
// Only _test files and other test packages may import it. It needs Linux and what
// test/peers/hosts/install.sh installs.
package sshtest
