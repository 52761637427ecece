// Package sshaccess reaches hosts by SSH: with pinned host keys only, through jump
// hosts, to addresses that a guard allowed, and runs programs there whose whole
// process tree can be ended.
//
// What lives where: key.go reads what logs in, agent.go lends it to a tool;
// knownhosts.go holds the pins; dial.go connects and client.go watches the
// connection; quote.go is the only place that quotes for a shell; script.go is what
// runs on the host, run.go starts it, stop.go ends it; errors.go names what can go
// wrong.
//
// What may be touched: nothing here trusts a host key on first use, asks a terminal,
// or reads files of the user (~/.ssh, SSH_AUTH_SOCK). No text of a job becomes part
// of a command but through Quote.
package sshaccess
