// Package agent is the runner's one process: it leases attempts from the
// service, runs each under a shim, streams its log, reports, and says how it
// ended. It has the API only (Plane), and no database.
//
// One file per loop or step:
//
//	agent.go      New, Run (the order of starting and draining), Kill
//	register.go   who this runner is
//	commands.go   the one held request: offers, stops, drain, gone
//	report.go     heartbeats and progress of all leases
//	fence.go      ends what runs on without an acknowledged report
//	attempt.go    one attempt from offer to removal; accept.go, execute.go,
//	              intake.go, conclude.go and complete.go are its steps
//	spool.go      the log on disk; upload.go sends it by offset, cadence.go says
//	              how often, room.go what happens on a full disk
//	metrics.go    what an operator may watch
//	records.go    evidence and facts; artifact.go files, textcopy.go texts among them
//	secrets.go    what is read from Vault before the launch, as files in memory
//	              (package secretdir); prints.go for the scan; secretartifact.go
//	              the way back; vaultsession.go tokens and their end
//	commandrevoke.go  what another runner left in Vault
//	masklog.go    the agent's own log; diagnostics.go the shim's words
//	recover.go    what a crashed agent left behind; journal.go is what it reads
//	plane.go      what the service is to an agent; dial.go is that by HTTP
//	launch.go     what an executor is to an agent; package shim is that
//
// What may be touched: a new step of an attempt is a method of attempt in a
// file of its own. What must hold: nothing with a side effect starts before
// start was acknowledged; every write of a lease carries an Idempotency-Key
// that is made once; a refusal by the service is believed, its silence never;
// everything that leaves as text goes through the masker; tokens stand in no
// log line; a value of a secret is on no disk, in no argument and no environment,
// and a token of Vault is on record before it is used.
package agent
