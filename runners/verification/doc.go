// Package verification is the executor of the verification runner: it probes a
// resource until its expectations hold or the deadline has come, keeps every
// sample, and records one evidence for each expectation.
//
// What lives where: probe.go makes the probes of an action; probing.go lets them
// take turns and loop.go follows each, the same for all kinds; stability.go and
// schedule.go decide when an expectation has passed and when to try again; http.go,
// tcp.go and postgres.go make one try each; custom.go judges by an assertion of
// policy what they, ssh.go or ansible.go found; capability.go makes the set that
// policy requires; guard.go is the only place that lets sockets be opened, and
// decide.go asks policy about the rest; serve.go joins the package to the executor
// protocol.
//
// What may be touched: a new probe is one file with a prober, its schema in
// schemas/, one line in newProber, and its entry in the catalogue. No probe
// dials but through the guard, which asks policy about the very address of the
// socket. Nothing that a peer sends goes into a message, a reason or a sample,
// but its size, digest and the fields that the probe names; only an assertion sees
// it. Executors of other runners are given by the program, see Checks.
package verification
