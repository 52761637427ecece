// Package dispatch moves what nobody asks for: it offers queued attempts to the
// runners that wait for work, lets timers fire, and finds runners that are gone.
//
// Next answers a runner's held request. While it waits it holds no database
// connection; it is woken in memory when this replica appends something that
// concerns it, and looks again every second for what other replicas did. The
// sweeper is one per deployment, under a fenced row lease.
//
// Every decision is made by package domain and recorded by package commands;
// this package only chooses what to try. Losing a race costs a try, never a
// second lease.
package dispatch
