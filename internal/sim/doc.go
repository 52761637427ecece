// Package sim runs the real domain, commands and dispatch (queue, held requests,
// sweeper, feed) in a world of its own: one store in memory, several replicas,
// simulated runners, a network, and a clock that only the world moves. One seed
// decides everything, and the same seed gives the same run, event for event.
//
// A run lives in a bubble of testing/synctest. Every call into the store, every
// message and every timer is an event of one loop, and between two events exactly
// one goroutine works. Timers of the product's own go off between events, and what
// they do goes through the loop at its next step. So commands of different replicas
// interleave at each step they take at the store, and in an order that the seed
// decides. What is drawn for an event depends on who draws it and how often it did
// so before, never on what others drew: leaving one kind of fault out leaves the
// rest of a run much as it was, which is how a failing run is made smaller.
//
// The observer reads every event as it is stored and holds it against a second,
// shorter account of what may follow what. At checkpoints and at the end the
// whole ledger is checked: chain, folds, rows, acknowledged bytes, answers, and
// that everything ended. A campaign tells of every fault and every transition that
// never happened in it.
//
// script.go plans single runs by hand, to prove the arithmetic of leases case by
// case.
//
// register.go is a sequential specification of an attempt for porcupine, which
// checks histories of real concurrent calls.
package sim
