// Package cluster hunts for failures in a cluster of real processes: three
// replicas, five runners with shims and executors, a PostgreSQL and an S3 server
// of its own, and in long runs a Kafka broker and receivers of callbacks, under
// faults that a seed draws. It holds tests only.
//
//	plan.go       what a seed means: jobs and faults, with their times
//	world.go      the processes; child.go what each of them is
//	executor.go   the executor, whose every byte can be foretold
//	proxy.go      the way of a runner to the service; netns.go its network
//	nemesis.go    the faults, and how often each really took effect
//	delivery.go   a Kafka broker and receivers, their faults, and what must have arrived
//	load.go       callers: submits, cancels, followers, readers
//	watch.go      what is looked at meanwhile: the machine, the ledger
//	check*.go     what must hold at the end; self.go shows that lies are found
//	race_test.go  200 runners race for 100 attempts
//
// (each name with _test). The seed fixes the plan of load and faults. What real
// processes do with it is theirs: a run cannot be replayed step by step.
//
// What may be touched: a new fault is an entry of faultKinds, a begin and an end
// in nemesis_test.go, and what it excuses in check_test.go. A check must never
// excuse what no fault of the run can explain.
package cluster
