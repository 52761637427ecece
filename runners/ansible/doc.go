// Package ansible is the executor of the ansible runner: it runs a playbook or a
// role of an approved package with the machine's own ansible-playbook, checks an
// inventory, and says what a playbook would change.
//
// What lives where: attempt.go is the order of things; grant.go asks policy;
// pack.go opens the package, walk*.go reads its YAML and refuses what the grant
// does not give; inventory*.go and dial.go make the one inventory that ansible
// sees, from addresses that policy allowed; ssh.go, variables.go, yaml.go and
// environment.go write the files of the run; tools.go, run.go, stop.go and
// descent.go start it and end it with everything it started; events.go, tally.go,
// checks.go, cause.go, outcome.go and report.go read the event stream and say what
// came of it. plugins holds the two Python files that go into ansible: the event
// stream and the guard.
//
// What may be touched: what a job may not do is refused in two places, before the
// run by the walk and in it by the guard; a new rule belongs in both. Whatever
// ansible is told by name (host, group, tag, variable) has passed a grammar here,
// and whatever it is told by value is in a file, never on its command line.
package ansible
