// Package client speaks the HTTP API for programs: the CLI and the agent use it,
// and so may anybody else. One method stands for one route and takes and returns
// the types of packages wire and domain.
//
// An answer that is not a success comes back as *ProblemError. A service that
// cannot be reached, or that does not answer before the context's deadline,
// satisfies errors.Is(err, ErrUnreachable).
//
// Nothing is repeated in secret: a GET whose connection failed before any answer
// is sent at most twice more within half a second, and the tails reconnect where
// they stopped. Writes are sent once; the caller repeats them with the same
// Idempotency-Key. (net/http sends a keyed write again if a kept connection had
// died before the request reached the service; the key makes that harmless.)
//
// A new route gets a method in the file of its resource.
package client
