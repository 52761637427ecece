package policy

import (
	"encoding/json"
	"maps"
)

// normal gives the input with its raw JSON in one form: keys sorted, no spaces,
// numbers as they were written. What is no JSON object is left out, and ok is
// false.
func (in Input) normal() (out Input, ok bool) {
	if in.Parameters, ok = normalObject(in.Parameters); !ok {
		in.Parameters = nil
	}
	if in.Use != nil && in.Use.Command != nil {
		use, command := *in.Use, *in.Use.Command
		var sound bool
		if command.Arguments, sound = normalObject(command.Arguments); !sound {
			command.Arguments, ok = nil, false
		}
		use.Command = &command
		in.Use = &use
	}
	return in, ok
}

func normalObject(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) == 0 {
		return nil, true
	}
	if !json.Valid(raw) {
		return nil, false
	}
	v, ok := decodeJSON(raw).(map[string]any)
	if !ok {
		return nil, string(raw) == "null"
	}
	out, err := json.Marshal(v)
	return out, err == nil
}

// objectOf gives the arguments of a command or the parameters of a job by name; an
// empty object for what is none.
func objectOf(raw json.RawMessage) map[string]any {
	v, ok := decodeJSON(raw).(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return v
}

// merged puts b over a.
func merged(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	maps.Copy(out, b)
	return out
}
