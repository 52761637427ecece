package sshtest

import (
	"os"

	"golang.org/x/crypto/ssh"
)

// Sudo is what sudo does on a host.
type Sudo string

// Ways of sudo.
const (
	SudoAbsent  Sudo = "" // there is no such program
	SudoAllows  Sudo = "allow"
	SudoRefuses Sudo = "refuse" // "sudo: a password is required"
)

// Tester is the ordinary user of every host.
const Tester = "tester"

// Users are who can log in to a host that this process starts.
func Users() []string {
	if os.Geteuid() == 0 {
		return []string{"root", Tester}
	}
	return []string{Tester}
}

// SmallDir is the folder that Options.SmallBytes bounds.
const SmallDir = "/srv/small"

// Options say what a host is like. The zero value is a host with an Ed25519 host
// key that lets in the user who runs the test.
type Options struct {
	// User is who logs in: root or Tester. Empty: root for a test that root runs,
	// else Tester. An ordinary user's host has no root.
	User string
	// HostKeyTypes are ed25519, rsa and ecdsa; default ed25519.
	HostKeyTypes []string
	// HostCA signs the host's keys as a certificate for HostNames.
	HostCA    *CA
	HostNames []string
	// UserCA lets in certificates that it signed, beside the host's own key.
	UserCA *CA
	// NoKey lets nobody in by the host's own key.
	NoKey bool
	Sudo  Sudo
	// Shell is the login shell of the users; default /bin/sh.
	Shell string
	// SmallBytes makes SmallDir a file system of this size.
	SmallBytes int64
	// Units are what systemctl knows: unit to properties in lines Key=Value. Given
	// as "" it is an active unit.
	Units map[string]string
	// Files are written before the start: path to content.
	Files map[string]string
	// Env are more assignments for every login, without blanks: "BASH_ENV=/etc/x".
	Env []string
	// Config are more lines of sshd_config.
	Config []string
}

// CA signs keys.
type CA struct {
	signer ssh.Signer
}
