package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

func runnerPath(id domain.RunnerID, rest string) string {
	return "/v1/runners/" + url.PathEscape(id.String()) + rest
}

// Register enrols or registers a runner. The client's token is the enrolment
// token the first time, the runner's own token ever after (see WithToken).
func (c *Client) Register(ctx context.Context, key domain.CommandID, r wire.Registration) (wire.Registered, error) {
	return post[wire.Registered](ctx, c, key, "/v1/runners", r)
}

// Commands holds a request of at most wait (0 to 30 s) that brings offers, stops
// and drains. Give ctx a deadline somewhat after wait.
func (c *Client) Commands(ctx context.Context, key domain.CommandID, id domain.RunnerID, r wire.CommandsRequest, wait time.Duration) (wire.Commands, error) {
	k := &call{method: http.MethodPost, path: runnerPath(id, "/commands")}
	k.key(key)
	if wait > 0 {
		k.query = url.Values{"wait": {seconds(wait)}}
	}
	if err := k.encode(r); err != nil {
		return wire.Commands{}, err
	}
	return do[wire.Commands](ctx, c, k)
}

// Report sends heartbeats and progress of all leases at once. Messages that are
// too long are cut here, since a refused report would cost the leases.
func (c *Client) Report(ctx context.Context, key domain.CommandID, id domain.RunnerID, r wire.ReportRequest) (wire.ReportAnswer, error) {
	leases := make([]wire.LeaseReport, len(r.Leases))
	copy(leases, r.Leases)
	for i, l := range leases {
		if l.Progress != nil {
			p := *l.Progress
			p.Phase, p.Message = clip(p.Phase, maxPhase), clip(p.Message, maxMessage)
			leases[i].Progress = &p
		}
	}
	return post[wire.ReportAnswer](ctx, c, key, runnerPath(id, "/report"), wire.ReportRequest{Leases: leases})
}

// Revoked says that this runner revoked Vault tokens which another one of its pool
// left behind, see wire.Commands.Revoke.
func (c *Client) Revoked(ctx context.Context, key domain.CommandID, runner domain.RunnerID, r wire.RevokedRequest) (wire.Ack, error) {
	return post[wire.Ack](ctx, c, key, runnerPath(runner, "/revoked"), r)
}

// Runners lists the registered runners.
func (c *Client) Runners(ctx context.Context) ([]wire.Runner, error) {
	p, err := get[wire.Page[wire.Runner]](ctx, c, "/v1/runners", nil)
	return p.Items, err
}

// Runner returns one runner.
func (c *Client) Runner(ctx context.Context, id domain.RunnerID) (wire.Runner, error) {
	return get[wire.Runner](ctx, c, runnerPath(id, ""), nil)
}

// ChangeRunner pauses, resumes, drains or evicts a runner: change is "pause",
// "resume", "drain" or "evict".
func (c *Client) ChangeRunner(ctx context.Context, key domain.CommandID, id domain.RunnerID, change, reason string) (wire.Runner, error) {
	return post[wire.Runner](ctx, c, key, runnerPath(id, "/"+url.PathEscape(change)), wire.ReasonRequest{Reason: reason})
}

// PolicyBundle returns the policy bundle with this digest (hex SHA-256) as the
// archive that policy.Open reads. The caller compares the digest.
func (c *Client) PolicyBundle(ctx context.Context, digest string) ([]byte, error) {
	a, err := c.read(ctx, &call{method: http.MethodGet, path: "/v1/policy/bundles/" + url.PathEscape(digest)})
	return a.body, err
}
