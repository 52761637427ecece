// Package strictjson reads one JSON value the one way it can be read.
//
// The standard decoder matches names without regard to case, lets the last of
// two equal names win, replaces broken text and rounds large integers, so two
// readers of one body can see two different values. Here each of these is an
// error that names the place as an RFC 6901 pointer. A body that passes means
// the same to encoding/json, to a JavaScript client, to RFC 8785 and to
// Postgres.
//
// Types decide about null: a pointer, slice, map, interface or json.Unmarshaler
// takes it, a plain value does not. A uuid.UUID takes only its canonical
// spelling. A type with its own UnmarshalJSON sees only text that passed the
// general rules; what names it knows is its own affair, and it may call
// Unmarshal again: the pointers are joined.
//
// The package depends on the standard library and google/uuid only and knows
// nothing of HTTP.
package strictjson
