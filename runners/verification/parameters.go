package verification

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/runners"
)

// pacing are the names of common but resource_id: when to try, and for how long.
var pacing = []string{"deadline_seconds", "timeout_seconds", "interval_seconds", "stable_successes", "stable_seconds", "backoff"}

// common are the parameters that every probe has.
type common struct {
	ResourceID      string   `json:"resource_id"`
	DeadlineSeconds float64  `json:"deadline_seconds"`
	TimeoutSeconds  float64  `json:"timeout_seconds"`
	IntervalSeconds float64  `json:"interval_seconds"`
	StableSuccesses int      `json:"stable_successes"`
	StableSeconds   *float64 `json:"stable_seconds"`
	Backoff         struct {
		Factor             float64  `json:"factor"`
		MaxIntervalSeconds float64  `json:"max_interval_seconds"`
		Jitter             *float64 `json:"jitter"`
	} `json:"backoff"`
}

// named are the fields that every expectation has.
type named struct {
	Name       string `json:"name"`
	Capability string `json:"capability"`
}

// tlsParameters are the same for every kind that speaks TLS. Verification
// cannot be switched off.
type tlsParameters struct {
	ServerName string `json:"server_name"`
	CAPEM      string `json:"ca_pem"`
}

// plan is what the loop needs, with every default filled in.
type plan struct {
	target   runners.Target
	resource Resource
	deadline time.Duration
	timeout  time.Duration // of one try
	lastTry  time.Duration // what the last try keeps of the deadline; 0 is for a quick one
	retry    policy.RetryPolicy
}

// defaultTryTimeout bounds one try where the parameters do not.
const defaultTryTimeout = 5 * time.Second

func newPlan(req Request) (plan, error) {
	if err := checkParameters(req.Action, req.Parameters); err != nil {
		return plan{}, err
	}
	var c common
	if err := json.Unmarshal(req.Parameters, &c); err != nil {
		return plan{}, errors.New("the parameters are no JSON object")
	}
	resources := make([]runners.Resource, len(req.Resources))
	for i, r := range req.Resources {
		resources[i] = r.Resource
	}
	targets, violations := runners.Targets(req.Action, req.Parameters, resources)
	if len(violations) > 0 {
		return plan{}, fmt.Errorf("%s: %s", violations[0].Pointer, violations[0].Message)
	}
	p := plan{target: targets[0], deadline: probeDeadline(c.DeadlineSeconds, req.Timeout), timeout: defaultTryTimeout}
	for _, r := range req.Resources {
		if r.ID == p.target.ResourceID {
			p.resource = r
		}
	}
	if c.TimeoutSeconds > 0 {
		p.timeout = seconds(c.TimeoutSeconds)
	}
	retry, _ := req.Policy.Retry("")
	if req.Retry != nil {
		retry = *req.Retry
	}
	p.retry = mergeRetry(retry, c)
	return p, nil
}

// checkParameters holds parameters to the action's schema.
func checkParameters(action string, params json.RawMessage) error {
	if violations := runners.Catalogue().ValidateParameters(action, params); len(violations) > 0 {
		v := violations[0]
		return fmt.Errorf("parameter %q: %s", v.Pointer, v.Message)
	}
	return nil
}

// probeDeadline is the time that the tries have: what the job asks for, at
// most its timeout less the reserve. A timeout too short for the reserve,
// which the service refuses, leaves half of it.
func probeDeadline(asked float64, timeout time.Duration) time.Duration {
	longest := timeout - runners.ProbeReserve
	if longest < time.Second {
		longest = timeout / 2
	}
	if d := seconds(asked); d > 0 && d < longest {
		return d
	}
	return longest
}

// mergeRetry lays the parameters over the named policy, field by field. A
// bundle without any policy leaves one try a second and one success.
func mergeRetry(p policy.RetryPolicy, c common) policy.RetryPolicy {
	if p.Interval == 0 {
		p.Interval, p.MaxInterval = time.Second, time.Second
	}
	if c.IntervalSeconds > 0 {
		p.Interval = seconds(c.IntervalSeconds)
	}
	if c.Backoff.Factor > 0 {
		p.Factor = c.Backoff.Factor
	}
	if c.Backoff.MaxIntervalSeconds > 0 {
		p.MaxInterval = seconds(c.Backoff.MaxIntervalSeconds)
	}
	if c.Backoff.Jitter != nil {
		p.Jitter = *c.Backoff.Jitter
	}
	if c.StableSuccesses > 0 {
		p.StableSuccesses = c.StableSuccesses
	}
	if c.StableSeconds != nil {
		p.StableFor = seconds(*c.StableSeconds)
	}
	p.Factor = max(p.Factor, 1)
	p.MaxInterval = max(p.MaxInterval, p.Interval)
	p.StableSuccesses = max(p.StableSuccesses, 1)
	return p
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// decode reads a probe's own parameters. Numbers stay as they were written,
// for the comparison of JSON values.
func decode(params json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(params))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return errors.New("the parameters do not have the shape of the action's schema")
	}
	return nil
}
