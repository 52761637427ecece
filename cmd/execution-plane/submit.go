package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
)

type submitCmd struct {
	File    string `short:"f" required:"" xor:"job" help:"JobSpec as JSON or YAML; - reads standard input."`
	RetryOf string `required:"" xor:"job" placeholder:"ATTEMPT" help:"Run an earlier attempt's job again, as a new attempt: its id, a prefix of it, or @latest."`
	Detach  bool   `short:"d" help:"Return as soon as the attempt is recorded."`
	DryRun  bool   `help:"Say what would come of it; nothing is written."`
}

func (c *submitCmd) Run(s *session) error {
	api, spec, err := c.job(s)
	if err != nil {
		return err
	}
	if c.DryRun {
		return validate(s, api, spec)
	}
	receipt, first, err := api.Submit(s.ctx, spec)
	if err != nil {
		return err
	}
	if c.Detach {
		if s.isJSON() {
			return s.json(receipt)
		}
		fmt.Fprintf(s.out, "attempt %s recorded\nFollow it: execution-plane watch %s\n", receipt.AttemptID, short(receipt.AttemptID))
		return nil
	}
	if !s.isJSON() {
		word := "recorded"
		if !first {
			word = "was recorded before"
		}
		fmt.Fprintf(s.err, "attempt %s %s\n", receipt.AttemptID, word)
	}
	return follow(s, api, receipt.AttemptID)
}

// job is what is to be submitted.
func (c *submitCmd) job(s *session) (*client.Client, []byte, error) {
	if c.RetryOf != "" {
		api, id, err := s.target(c.RetryOf)
		if err != nil {
			return nil, nil, err
		}
		before, err := api.JobSpec(s.ctx, id)
		if err != nil {
			return nil, nil, err
		}
		spec, err := repeated(before, id)
		return api, spec, err
	}
	spec, err := readJob(s, c.File)
	if err != nil {
		return nil, nil, err
	}
	api, err := s.client()
	return api, spec, err
}

// repeated makes of the JobSpec of an attempt that of one which repeats it.
func repeated(spec []byte, id domain.AttemptID) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(spec, &fields); err != nil {
		return nil, fmt.Errorf("read the JobSpec of %s: %w", id, err)
	}
	for name, v := range map[string]string{"attempt_id": uuid.NewString(), "retry_of": id.String()} {
		fields[name], _ = json.Marshal(v) // a string always can be
	}
	out, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write the JobSpec that repeats %s: %w", id, err)
	}
	return out, nil
}

type watchCmd struct {
	ID string `arg:"" help:"Attempt id, a prefix of it, or @latest."`
}

func (c *watchCmd) Run(s *session) error {
	api, id, err := s.target(c.ID)
	if err != nil {
		return err
	}
	return follow(s, api, id)
}

// follow shows an attempt's progress until it ends, prints its result, and ends
// with the result's exit code.
func follow(s *session, api *client.Client, id domain.AttemptID) error {
	r, err := followResult(s, api, id)
	if err != nil {
		return err
	}
	if code := resultCode(r); code != exitOK {
		return &exitError{code: code}
	}
	return nil
}

// followResult shows an attempt's progress until it ends and prints its result.
func followResult(s *session, api *client.Client, id domain.AttemptID) (r domain.ExecutionResult, err error) {
	raw, err := waitResult(s, api, id)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, fmt.Errorf("read the result: %w", err)
	}
	if s.isJSON() {
		return r, s.raw(raw)
	}
	printResult(s.out, r)
	printRunnerSays(s, api, id, r)
	return r, nil
}

// waitResult waits for the end; progress goes to the error stream, as a bar on a
// terminal, as lines of changes elsewhere, and not at all for JSON.
func waitResult(s *session, api *client.Client, id domain.AttemptID) ([]byte, error) {
	if s.isJSON() {
		for {
			raw, _, err := api.Result(s.ctx, id, 30*time.Second)
			if err != nil || raw != nil {
				return raw, err
			}
		}
	}
	p := newProgress(s.err)
	defer p.end()
	for {
		a, err := api.Attempt(s.ctx, id)
		if err != nil {
			return nil, err
		}
		p.show(a)
		raw, _, err := api.Result(s.ctx, id, time.Second)
		if err != nil || raw != nil {
			return raw, err
		}
	}
}
