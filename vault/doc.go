// Package vault reads secrets from HashiCorp Vault by reference, and stores what an
// attempt makes that is secret, for the runner's agent and nobody else, while one
// attempt runs.
//
// A Client holds the agent's own login (AppRole, Kubernetes or a token file), keeps
// it alive and ends it with Logout. A Session belongs to one attempt: its child token comes from a
// token role, carries the policies that the policy bundle maps and no others, ends
// by itself with the attempt's time, and is revoked by Close together with the
// leases that were made under it. After a crash RevokeAccessors and RevokeLeases
// end what the ledger names. A session that writes is another than the one that
// reads, from a token role of its own.
//
// What the agent's token must be allowed, all of it "update", beside the policy
// "default", with which it looks at itself, renews itself and ends itself:
//
//	auth/token/create/<role>    each token role: orphan=true, allowed_policies set
//	auth/token/revoke-accessor  the end of an attempt
//	auth/token/lookup-accessor  tells a token that has ended from a path that is denied
//	auth/token/renew-accessor   attempts longer than the server's longest token
//	sys/leases/renew            dynamic secrets that live shorter than their attempt
//	sys/leases/revoke           their end, waited for
//
// The last four are optional: without them a token is made anew where it would
// have been renewed, and leases end with their token, a moment later.
//
// A policy for storing allows "create" and "read" on <mount>/data/<where>/*: what
// may be read back is how a write whose answer was lost is known for its own.
//
// No value leaves this package but by Value.Bytes. Errors hold a kind, the
// reference, a status and words of this package: what the server or the library
// wrote is read for its meaning and dropped, for it may repeat a request. The
// library's logging is off. Nothing is taken from the environment: no VAULT_*
// variable and no proxy; a VAULT_* variable that the library cannot even parse
// makes New fail. Redirects are not followed, since they would carry the token to
// an address that nobody configured: a standby that does not forward requests
// counts as unavailable.
//
// What may be touched: a new way to log in is one type in its own file; a new
// engine needs nothing here unless it answers in a form of its own. Errors get
// their kind in classify.go and nowhere else.
package vault
