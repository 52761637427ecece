// Package dispatch moves what nobody asks for: it offers queued attempts to the
// runners that wait for work, lets timers fire, and finds runners that are gone.
//
// Next answers a runner's held request. While it waits it asks nothing of the
// database. Each replica keeps one picture of the queue, in buckets of attempts
// with the same need, and gives each attempt that comes to one waiting request
// that fits it. The picture is kept by what this replica appends, by the feed for
// what others append, and by one poll per replica for what was missed. The sweeper
// is one per deployment, under a fenced row lease.
//
// Every decision is made by package domain and recorded by package commands;
// this package only chooses what to try. Losing a race costs a try, never a
// second lease.
package dispatch
