package api

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/dispatch"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

func (s *server) listRunners(q *request) error {
	views, err := s.Reads.Runners(q.Context())
	if err != nil {
		return err
	}
	page := wire.Page[wire.Runner]{Items: make([]wire.Runner, len(views))}
	for i, v := range views {
		page.Items[i] = runnerOf(v)
	}
	return q.json(http.StatusOK, page)
}

func (s *server) getRunner(q *request) error {
	id, err := pathID[domain.RunnerID](q)
	if err != nil {
		return err
	}
	return s.showRunner(q, id)
}

func (s *server) showRunner(q *request, id domain.RunnerID) error {
	v, err := s.Reads.Runner(q.Context(), id)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, runnerOf(v))
}

// changeRunner makes the handler of an operator's change.
func changeRunner(change string) func(*server, *request) error {
	return func(s *server, q *request) error {
		id, err := pathID[domain.RunnerID](q)
		if err != nil {
			return err
		}
		body, err := decodeBody[wire.ReasonRequest](q.body)
		if err != nil {
			return err
		}
		if _, err := s.Commands.ChangeRunner(q.Context(), q.meta, id, change, body.Reason); err != nil {
			return err
		}
		if change == "evict" {
			if err := s.Dispatch.Evicted(q.Context(), id); err != nil {
				return fmt.Errorf("end the leases of an evicted runner: %w", err)
			}
		}
		return s.showRunner(q, id)
	}
}

func (s *server) register(q *request) error {
	body, err := decodeBody[wire.Registration](q.body)
	if err != nil {
		return err
	}
	who := q.who
	r := commands.RegisterRunner{Enrolment: who.enrolment, TokenID: who.tokenID, TokenSHA256: body.TokenSHA256, Registered: domain.RunnerRegistered{
		RunnerID: body.RunnerID, Name: body.Name, Version: body.Version, BinaryDigest: body.BinarySHA256, Host: body.Host,
		JobTypes: body.JobTypes, Actions: body.Actions, Environments: body.Environments, Labels: body.Labels, Tools: body.Tools,
		Isolation: body.Isolation, Slots: body.Slots,
	}}
	switch {
	case who.enrolment == nil && body.RunnerID != who.runnerID:
		return errForeign
	case who.enrolment != nil && body.TokenSHA256 != "" && !isSHA256(body.TokenSHA256):
		return violation("/token_sha256", "pattern", "is 64 lower-case hex digits")
	case who.enrolment != nil:
		q.meta.Actor = eventstore.Actor{Kind: domain.RoleRunner, ID: body.RunnerID.String(), Role: domain.RoleRunner, Auth: "enrolment"}
	}
	done, err := s.Commands.RegisterRunner(q.Context(), q.meta, r)
	if err != nil {
		return err
	}
	s.seen(q, body.RunnerID)
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	return q.json(http.StatusOK, wire.Registered{
		RunnerID: body.RunnerID, TokenID: done.TokenID, Pool: done.Runner.Pool, Status: string(done.Runner.Status), Slots: done.Slots,
		Timing:       wire.Timing{Profile: s.Profile.Name, ReportSeconds: seconds(s.Profile.ReportEvery), FenceSeconds: seconds(s.Profile.Fence), WaitSeconds: MaxWait},
		PolicyDigest: done.PolicyDigest,
	})
}

// seen notes that a runner was heard of. It is no fact of the ledger: a failure
// costs nothing that was asked for.
func (s *server) seen(q *request, id domain.RunnerID) {
	if err := s.Reads.SeenRunner(q.Context(), id); err != nil {
		s.Log.WarnContext(q.Context(), "noting that a runner was heard of failed", "runner_id", id.String(), "error", err.Error())
	}
}

// violation is an error about one place of a body.
func violation(pointer, code, message string) error {
	return &domain.Error{Kind: domain.KindInvalid, Code: "request_invalid", Message: "the request breaks a rule",
		Violations: []domain.Violation{{Pointer: pointer, Code: code, Message: message}}}
}

// Limits of a runner's requests.
const (
	maxSlots = 1000
	maxKnown = 4*maxSlots + 1
)

func (s *server) commandsFor(q *request) error {
	wait, err := q.query.wait()
	if err != nil {
		return err
	}
	body, err := decodeBody[wire.CommandsRequest](q.body)
	if err != nil {
		return err
	}
	if err := checkCommandsRequest(body); err != nil {
		return err
	}
	ctx, release, err := s.hold(q.Context())
	if err != nil {
		return err
	}
	defer release()
	n, err := s.Dispatch.Next(ctx, q.who.runnerID, dispatch.NextRequest{FreeSlots: body.FreeSlots, TokenSHA256: body.TokenSHA256, Known: body.Known}, wait)
	if err != nil {
		return err
	}
	out := wire.Commands{Offers: []wire.Offer{}, Stops: []wire.Stop{}, Drain: n.Drain, Gone: list(n.Gone)}
	for _, o := range n.Offers {
		out.Offers = append(out.Offers, offerOf(o))
	}
	for _, st := range n.Stops {
		out.Stops = append(out.Stops, *stopOf(&st))
	}
	for _, r := range n.Revoke {
		out.Revoke = append(out.Revoke, wire.Revoke{AttemptID: r.AttemptID, Accessors: r.Accessors})
	}
	return q.json(http.StatusOK, out)
}

func checkCommandsRequest(r *wire.CommandsRequest) error {
	if r.FreeSlots < 0 || r.FreeSlots > maxSlots {
		return violation("/free_slots", "range", "is from 0 to 1000")
	}
	if len(r.TokenSHA256) != r.FreeSlots {
		return violation("/token_sha256", "length", "names one fresh hash per free slot")
	}
	sorted := slices.Sorted(slices.Values(r.TokenSHA256))
	if len(slices.Compact(sorted)) != len(r.TokenSHA256) || slices.ContainsFunc(r.TokenSHA256, func(h string) bool { return !isSHA256(h) }) {
		return violation("/token_sha256", "pattern", "holds different hashes of 64 lower-case hex digits")
	}
	if len(r.Known) > maxKnown || slices.ContainsFunc(r.Known, func(k string) bool { return len(k) > 64 || !printable(k) }) {
		return violation("/known", "invalid", "names leases, stops, drain and attempts whose tokens are revoked")
	}
	return nil
}

func (s *server) report(q *request) error {
	body, err := decodeBody[wire.ReportRequest](q.body)
	if err != nil {
		return err
	}
	parts, err := reportParts(q.who.runnerID, body)
	if err != nil {
		return err
	}
	s.seen(q, q.who.runnerID)
	results := s.Commands.Report(q.Context(), q.meta, parts)
	now, err := s.clock(q, results)
	if err != nil {
		return err
	}
	out := wire.ReportAnswer{NextSeconds: int(s.Profile.ReportEvery / time.Second), FlushSeconds: max(1, int(s.FlushEvery/time.Second)),
		Leases: make([]wire.LeaseVerdict, len(results))}
	away := 0
	var last error
	for i, r := range results {
		v := wire.LeaseVerdict{LeaseID: parts[i].LeaseID, Status: "ok"}
		if r.Err == nil {
			v.Stop = stopOf(dispatch.StopOf(r.Attempt, now))
			v.FlushSeconds = s.followedFlush(q.Context(), r.Attempt.ID)
			v.ProgressTooSoon = r.TooSoon
		} else if v.Status, v.Code = s.verdict(q, r.Err); v.Status == statusAway {
			away++
			last = r.Err
		}
		out.Leases[i] = v
	}
	if away > 0 && away == len(results) {
		return last
	}
	return q.json(http.StatusOK, out)
}

// clock is the database's clock where a deadline must be counted by it.
func (s *server) clock(q *request, results []commands.ReportResult) (time.Time, error) {
	if slices.ContainsFunc(results, func(r commands.ReportResult) bool { return r.Err == nil && r.Attempt.Stop != nil }) {
		return s.Reads.Now(q.Context())
	}
	return time.Time{}, nil
}

func reportParts(runner domain.RunnerID, body *wire.ReportRequest) ([]commands.LeaseReport, error) {
	if len(body.Leases) > maxSlots {
		return nil, violation("/leases", "max_items", "has at most 1000 entries")
	}
	seen := map[domain.LeaseID]bool{}
	parts := make([]commands.LeaseReport, len(body.Leases))
	for i, l := range body.Leases {
		at := fmt.Sprintf("/leases/%d", i)
		switch {
		case l.LeaseID.IsZero() || seen[l.LeaseID]:
			return nil, violation(at+"/lease_id", "invalid", "is required and stands once in a report")
		case l.Epoch < 1:
			return nil, violation(at+"/epoch", "range", "is a positive integer")
		case !leaseToken.MatchString(l.Token):
			return nil, violation(at+"/token", "invalid", "is the lease token itself")
		}
		seen[l.LeaseID] = true
		parts[i] = commands.LeaseReport{LeaseCall: commands.LeaseCall{LeaseID: l.LeaseID, Epoch: l.Epoch, Token: l.Token, RunnerID: runner}}
		if p := l.Progress; p != nil {
			parts[i].Progress = &commands.Progress{Phase: p.Phase, Done: p.Done, Total: p.Total, Message: p.Message}
		}
	}
	return parts, nil
}

// statusAway says that one lease's part was not taken, for now.
const statusAway = "unavailable"

// verdict words what became of one lease in a report.
func (s *server) verdict(q *request, err error) (status, code string) {
	e := refusalOf(err)
	if e == nil {
		s.Log.ErrorContext(q.Context(), "a lease's report failed inside the service", "incident", q.id, "error", err.Error())
		return statusAway, "internal"
	}
	switch e.Kind {
	case domain.KindGone:
		return "gone", e.Code
	case domain.KindConflict:
		return "stale", e.Code
	case domain.KindForbidden, domain.KindNotFound, domain.KindMalformed, domain.KindInvalid:
		return "refused", e.Code
	}
	return statusAway, e.Code
}
