package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func attemptPath(id domain.AttemptID, rest string) string {
	return "/v1/attempts/" + url.PathEscape(id.String()) + rest
}

// Submit hands in a JobSpec, given as its JSON bytes: they are what is kept and
// digested. created is false where the same bytes were accepted before.
func (c *Client) Submit(ctx context.Context, spec []byte) (r wire.Receipt, created bool, err error) {
	k := &call{method: http.MethodPost, path: "/v1/attempts", body: spec}
	a, err := c.read(ctx, k)
	if err != nil {
		return r, false, err
	}
	return r, a.status == http.StatusCreated, decode(k, a.body, &r)
}

// SubmitSpec is Submit for a spec that was built in Go.
func (c *Client) SubmitSpec(ctx context.Context, spec *domain.JobSpec) (wire.Receipt, bool, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return wire.Receipt{}, false, err
	}
	return c.Submit(ctx, b)
}

// DryRun says what would come of a JobSpec; nothing is written.
func (c *Client) DryRun(ctx context.Context, spec []byte) (wire.DryRun, error) {
	return do[wire.DryRun](ctx, c, &call{method: http.MethodPost, path: "/v1/attempts", query: url.Values{"dry_run": {"true"}}, body: spec})
}

// AttemptQuery narrows a list of attempts; zero fields do not narrow.
type AttemptQuery struct {
	OperationID domain.OperationID
	PlanNodeID  string
	Status      string // queued, leased, running, finalizing, or a final status
	FailureCode domain.FailureCode
	RunnerID    domain.RunnerID
	JobType     string
	Action      string
	Environment string
	ResourceID  string
	RequestedBy string // the principal's id
	IDPrefix    string // the first characters of attempt_id
	Since       time.Time
	Until       time.Time
	After       string // Page.Next of the page before
	Limit       int    // 1 to 500; 0 for the service's default
}

func (q AttemptQuery) values() url.Values {
	v := url.Values{}
	put := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	put("operation_id", q.OperationID.String())
	put("plan_node_id", q.PlanNodeID)
	put("status", q.Status)
	put("failure_code", string(q.FailureCode))
	put("runner_id", q.RunnerID.String())
	put("job_type", q.JobType)
	put("action", q.Action)
	put("environment", q.Environment)
	put("resource_id", q.ResourceID)
	put("requested_by", q.RequestedBy)
	put("id_prefix", q.IDPrefix)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.UTC().Format(time.RFC3339Nano))
	}
	put("after", q.After)
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Attempts lists attempts, the newest first.
func (c *Client) Attempts(ctx context.Context, q AttemptQuery) (wire.Page[wire.Attempt], error) {
	return get[wire.Page[wire.Attempt]](ctx, c, "/v1/attempts", q.values())
}

// Attempt returns one attempt.
func (c *Client) Attempt(ctx context.Context, id domain.AttemptID) (wire.Attempt, error) {
	return get[wire.Attempt](ctx, c, attemptPath(id, ""), nil)
}

// JobSpec returns the bytes of the attempt's JobSpec as they were accepted.
func (c *Client) JobSpec(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	a, err := c.read(ctx, &call{method: http.MethodGet, path: attemptPath(id, "/job-spec")})
	return a.body, err
}

// Result waits at most wait (0 to 30 s) for the attempt's end. raw is the
// ExecutionResult's JSON, the same bytes for ever; nil while pending.
func (c *Client) Result(ctx context.Context, id domain.AttemptID, wait time.Duration) (raw []byte, pending *wire.Pending, err error) {
	k := &call{method: http.MethodGet, path: attemptPath(id, "/result")}
	if wait > 0 {
		k.query = url.Values{"wait": {seconds(wait)}}
	}
	a, err := c.read(ctx, k)
	if err != nil {
		return nil, nil, err
	}
	if a.status == http.StatusAccepted {
		pending = &wire.Pending{}
		return nil, pending, decode(k, a.body, pending)
	}
	return a.body, nil, nil
}

// AttemptEvents returns the attempt's events with version > after, at most limit
// (0 for the service's default).
func (c *Client) AttemptEvents(ctx context.Context, id domain.AttemptID, after int64, limit int) (wire.Page[wire.Event], error) {
	v := url.Values{}
	if after > 0 {
		v.Set("after", strconv.FormatInt(after, 10))
	}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	return get[wire.Page[wire.Event]](ctx, c, attemptPath(id, "/events"), v)
}

// StateAtVersion returns the attempt folded up to a version; 0 for the present.
func (c *Client) StateAtVersion(ctx context.Context, id domain.AttemptID, version int64) (wire.AttemptState, error) {
	v := url.Values{}
	if version > 0 {
		v.Set("version", strconv.FormatInt(version, 10))
	}
	return get[wire.AttemptState](ctx, c, attemptPath(id, "/state"), v)
}

// StateAtTime returns the attempt folded up to a moment.
func (c *Client) StateAtTime(ctx context.Context, id domain.AttemptID, at time.Time) (wire.AttemptState, error) {
	return get[wire.AttemptState](ctx, c, attemptPath(id, "/state"), url.Values{"at": {at.UTC().Format(time.RFC3339Nano)}})
}

// SecretArtifact asks where in Vault a secret artifact lies. Whether policy lets the
// token's role know is recorded.
func (c *Client) SecretArtifact(ctx context.Context, id domain.AttemptID, artifact domain.ArtifactID) (wire.SecretArtifact, error) {
	return get[wire.SecretArtifact](ctx, c, attemptPath(id, "/artifacts/"+url.PathEscape(artifact.String())+"/secret"), nil)
}

// Artifacts lists what the attempt stored.
func (c *Client) Artifacts(ctx context.Context, id domain.AttemptID) ([]wire.Artifact, error) {
	p, err := get[wire.Page[wire.Artifact]](ctx, c, attemptPath(id, "/artifacts"), nil)
	return p.Items, err
}

// Evidence lists what the attempt observed.
func (c *Client) Evidence(ctx context.Context, id domain.AttemptID) ([]wire.Evidence, error) {
	p, err := get[wire.Page[wire.Evidence]](ctx, c, attemptPath(id, "/evidence"), nil)
	return p.Items, err
}

// Manifest returns the sealed bundle's manifest, byte for byte.
func (c *Client) Manifest(ctx context.Context, id domain.AttemptID) ([]byte, error) {
	a, err := c.read(ctx, &call{method: http.MethodGet, path: attemptPath(id, "/bundle")})
	return a.body, err
}

// Explain says why the attempt is where it is.
func (c *Client) Explain(ctx context.Context, id domain.AttemptID) (wire.Explanation, error) {
	return get[wire.Explanation](ctx, c, attemptPath(id, "/explain"), nil)
}

// Cancel asks the attempt to stop. The answer is the attempt as it is then, also
// where it had already ended. A zero key lets the service make one.
func (c *Client) Cancel(ctx context.Context, key domain.CommandID, id domain.AttemptID, reason string) (wire.Attempt, error) {
	return post[wire.Attempt](ctx, c, key, attemptPath(id, "/cancel"), wire.ReasonRequest{Reason: reason})
}

// Abort ends the attempt as an operator.
func (c *Client) Abort(ctx context.Context, key domain.CommandID, id domain.AttemptID, reason string) (wire.Attempt, error) {
	return post[wire.Attempt](ctx, c, key, attemptPath(id, "/abort"), wire.ReasonRequest{Reason: reason})
}

// Requeue takes the attempt back from a runner that has not started it.
func (c *Client) Requeue(ctx context.Context, key domain.CommandID, id domain.AttemptID, reason string) (wire.Attempt, error) {
	return post[wire.Attempt](ctx, c, key, attemptPath(id, "/requeue"), wire.ReasonRequest{Reason: reason})
}

// SealIncomplete ends a finalizing attempt with what the ledger knows, while its
// bytes or object storage are away. An attempt that has ended comes back as it is.
func (c *Client) SealIncomplete(ctx context.Context, key domain.CommandID, id domain.AttemptID, reason string) (wire.Attempt, error) {
	return post[wire.Attempt](ctx, c, key, attemptPath(id, "/seal-incomplete"), wire.ReasonRequest{Reason: reason})
}
