// Package callbacks delivers each attempt's ExecutionResult to the endpoints that
// the operator configured. A job never brings a URL: it names an endpoint at most.
//
// One replica works at a time, under the row lease "callbacks". Its scheduler
// turns stored results into callbacks, one for each endpoint that wants them; a
// sender for each endpoint, with workers and connections of its own, makes the
// calls and records every try. Delivery is at least once and in no order: the same
// id and the same bytes on every try, signed as Standard Webhooks says.
//
// Plain http goes only to addresses of one's own networks, named in allow; every
// address is checked before and on the socket; redirects are failures; an answer's
// body is counted and hashed, never kept.
//
// The package touches the network through its guard, the files that the
// configuration names, and the ledger through the interfaces in ports.go.
package callbacks
