// Package domain decides. It holds what is true of attempts, runners, tokens and
// enrolments, and nothing about where that is stored or how it travels.
//
// Each aggregate is a small state, an Evolve that folds one event into it, and a
// Decide that answers a command with the events that follow, or with a named
// error. Both are pure: no clock, no randomness, no I/O. Time comes in as now,
// ids and salted text digests come in with the command. The linter holds this.
//
//	            ┌────────── refused, cancelled, queue timeout ───────────┐
//	queued ──offer──▶ leased ──start──▶ running ──complete──▶ finalizing ──▶ closed
//	   ▲                │                  │ lease lost, stop deadline   ▲
//	   └─ released, ────┘                  └──────────▶ finalizing ──────┘
//	      offer expired (never started)
//
// Invariants that hold in every reachable state:
//
//   - An attempt has at most one live lease; epochs only grow.
//   - Once an outcome is fixed it never changes.
//   - The terminal event is the last of the stream, and every ended attempt has
//     a bundle, the canonical empty one where nothing ran.
//   - side_effects is none only where it is certain that no executor was launched.
//
// A new event is added in one file event_<what>.go, registered in registry.go,
// folded in evolve_<aggregate>.go and described in docs/events.md; a golden file
// keeps one of every version ever written. Fields of written events never change
// their meaning; a changed payload is a new schema number and an upcaster.
package domain
