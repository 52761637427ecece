package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// retryJSON is the form in which a retry policy is handed to an executor: the
// fields of the bundle's YAML, durations as text.
type retryJSON struct {
	Name            string  `json:"name"`
	Interval        string  `json:"interval"`
	Factor          float64 `json:"factor"`
	MaxInterval     string  `json:"max_interval"`
	Jitter          float64 `json:"jitter"`
	StableSuccesses int     `json:"stable_successes"`
	StableFor       string  `json:"stable_for"`
	Attempts        int     `json:"attempts"`
}

// MarshalJSON gives the policy as an executor reads it.
func (p RetryPolicy) MarshalJSON() ([]byte, error) {
	return json.Marshal(retryJSON{
		Name: p.Name, Interval: p.Interval.String(), Factor: p.Factor, MaxInterval: p.MaxInterval.String(),
		Jitter: p.Jitter, StableSuccesses: p.StableSuccesses, StableFor: p.StableFor.String(), Attempts: p.Attempts,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote; an unknown field is an error.
func (p *RetryPolicy) UnmarshalJSON(data []byte) error {
	var in retryJSON
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("reading a retry policy: %w", err)
	}
	out := RetryPolicy{Name: in.Name, Factor: in.Factor, Jitter: in.Jitter,
		StableSuccesses: in.StableSuccesses, Attempts: in.Attempts}
	if in.Name != "" {
		out.Rule = "retry_policies/" + in.Name
	}
	for _, f := range []struct {
		field, text string
		into        *time.Duration
	}{
		{"interval", in.Interval, &out.Interval},
		{"max_interval", in.MaxInterval, &out.MaxInterval},
		{"stable_for", in.StableFor, &out.StableFor},
	} {
		if f.text == "" {
			continue
		}
		v, err := time.ParseDuration(f.text)
		if err != nil || v < 0 {
			return fmt.Errorf("reading a retry policy: %s is no duration", f.field)
		}
		*f.into = v
	}
	*p = out
	return nil
}
