package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// fakePlane is a service in memory: it offers jobs, holds leases, and stores what
// is sent. Every call can be made to fail before or after it had its effect.
type fakePlane struct {
	t       *testing.T
	enrol   string
	tokenID domain.TokenID

	mu      sync.Mutex
	news    chan struct{} // closed and replaced when a held request has to look again
	runner  domain.RunnerID
	secret  string // SHA-256 of the runner's secret
	refused bool   // the runner is not known any more
	timing  wire.Timing
	drain   bool
	// progressEvery is how often progress is taken; what comes sooner is dropped.
	progressEvery time.Duration
	flush         int    // seconds, of all logs
	jobs          []*job // waiting
	byLease       map[domain.LeaseID]*job
	byHash        map[string]*job
	answers       map[uuid.UUID]stored
	calls         []callMade
	asked         []wire.CommandsRequest
	policies      map[string][]byte
	stock         map[string]*stocked // inputs by name
	bodies        [][]byte            // every request's, as JSON, and what was put or sent as log
	revoke        []wire.Revoke
	revoked       []wire.RevokedRequest
	printKey      [32]byte

	// fault is asked on each call; nil means none. before: nothing happens;
	// after: it happens and the answer is lost.
	fault func(op string, n int) (before, after error)
	count map[string]int
	// logLimit, where > 0, is how many content bytes of a log call are stored
	// before the answer breaks off.
	logLimit func(stream string, n int64) int64
}

type stored struct {
	op     string
	digest [32]byte
	answer any
	err    error
}

type callMade struct {
	op     string
	at     time.Time
	leases int
}

// job is one attempt and its lease.
type job struct {
	offer     wire.Offer
	hash      string
	started   bool
	completed bool
	closed    bool
	lapsed    bool
	released  string
	stop      *wire.Stop
	isolation string
	logs      map[string][]byte
	chunks    map[string]int
	evidence  []wire.EvidenceRequest
	facts     []wire.FactRequest
	artifacts map[string]wire.ArtifactRequest
	objects   map[string][]byte
	prints    []uint64
	certain   int
	claim     *wire.CompleteRequest
	late      *wire.CompleteRequest
	progress  []wire.ReportProgress
	// progressed is when the last of it was taken.
	progressed time.Time
	reports    int
	// followByReport is the flush interval that the answers name, in seconds;
	// followByLog: those to its log, and not those to a report.
	followByReport int
	followByLog    bool
}

var errWire = errors.New("the connection broke")

func newFakePlane(t *testing.T) *fakePlane {
	b := policy.Builtin()
	return &fakePlane{
		t: t, enrol: "ee_enrol", tokenID: domain.NewID[domain.TokenID](uuid.New()), news: make(chan struct{}),
		flush: 1, timing: wire.Timing{Profile: "fast", ReportSeconds: 3, FenceSeconds: 14, WaitSeconds: 30},
		byLease: map[domain.LeaseID]*job{}, byHash: map[string]*job{}, answers: map[uuid.UUID]stored{},
		policies: map[string][]byte{b.Digest(): b.Bytes()}, count: map[string]int{}, stock: map[string]*stocked{},
	}
}

// connect is Config.Connect.
func (f *fakePlane) connect(bearer string) Plane { return &boundPlane{f, bearer} }

// submit queues a job.
func (f *fakePlane) submit(change func(*domain.JobSpec, *wire.Offer)) *job {
	spec := domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		PlanNodeID: "node", JobType: "verification", Action: "verify.x.free_space",
		Target: domain.Target{Environment: "dev"}, Controls: domain.Controls{TimeoutSeconds: 60},
	}
	o := wire.Offer{
		Epoch: 1, AttemptID: spec.AttemptID, OperationID: spec.OperationID, PlanNodeID: spec.PlanNodeID,
		OfferSeconds: 5, Isolation: "process", PolicyDigest: policy.Builtin().Digest(),
		Clocks: domain.Clocks{Profile: "fast", OfferSeconds: 5, RunSeconds: 60, StopSeconds: 6, LeaseSeconds: 20, UploadSeconds: 20, SalvageSeconds: 5},
	}
	if change != nil {
		change(&spec, &o)
	}
	o.LeaseID = domain.LeaseIDOf(o.AttemptID, o.Epoch)
	raw, err := json.Marshal(spec)
	if err != nil {
		f.t.Fatal(err)
	}
	o.JobSpec = raw
	j := &job{offer: o, logs: map[string][]byte{}, chunks: map[string]int{}, artifacts: map[string]wire.ArtifactRequest{}, objects: map[string][]byte{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, j)
	f.wakeLocked()
	return j
}

func (f *fakePlane) wakeLocked() {
	close(f.news)
	f.news = make(chan struct{})
}

// breakBy sets what goes wrong from now on.
func (f *fakePlane) breakBy(fault func(op string, n int) (before, after error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// with runs fn under the lock and wakes held requests.
func (f *fakePlane) with(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
	f.wakeLocked()
}

// view copies a job for assertions.
func (f *fakePlane) view(j *job) job {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := *j
	v.logs, v.chunks = maps.Clone(j.logs), maps.Clone(j.chunks)
	v.artifacts, v.objects = maps.Clone(j.artifacts), maps.Clone(j.objects)
	return v
}

func (f *fakePlane) callsOf(op string) []callMade {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []callMade
	for _, c := range f.calls {
		if c.op == op {
			out = append(out, c)
		}
	}
	return out
}

// askedTimes counts the held requests, those that are held now included.
func (f *fakePlane) askedTimes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked)
}

// stopJob asks for a stop, as a cancel does.
func (f *fakePlane) stopJob(j *job, reason domain.StopReason) {
	f.with(func() {
		j.stop = &wire.Stop{LeaseID: j.offer.LeaseID, AttemptID: j.offer.AttemptID, Epoch: j.offer.Epoch, Reason: reason,
			DeadlineSeconds: 36, LadderSeconds: j.offer.Clocks.StopSeconds}
	})
}

// boundPlane is the service with one bearer token.
type boundPlane struct {
	f      *fakePlane
	bearer string
}

func (b *boundPlane) Close() {}

func refusal(kind domain.Kind, code string) error {
	return fmt.Errorf("answered: %w", &domain.Error{Kind: kind, Code: code, Message: code})
}

// call notes a call, lets a fault happen, and keeps idempotent answers: the same
// key gives the same answer, and with another body it is the agent's mistake.
func call[R any](ctx context.Context, b *boundPlane, op string, key uuid.UUID, body any, do func() (R, error)) (R, error) {
	var none R
	f := b.f
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, callMade{op: op, at: time.Now()})
	n := f.count[op]
	f.count[op]++
	var before, after error
	if f.fault != nil {
		before, after = f.fault(op, n)
	}
	if before != nil {
		return none, before
	}
	if f.refused && op != "put" {
		return none, refusal(domain.KindUnauthenticated, "unauthenticated")
	}
	if op != "register" && op != "put" && secretSHA256(strings.TrimPrefix(b.bearer, "ep_"+f.tokenID.String()+"_")) != f.secret {
		f.t.Errorf("%s came with a foreign bearer token", op)
	}
	raw, _ := json.Marshal(body)
	f.bodies = append(f.bodies, raw)
	digest := sha256.Sum256(raw)
	if s, ok := f.answers[key]; ok && key != uuid.Nil {
		if s.op != op || s.digest != digest {
			f.t.Errorf("key %s was used for %s and again for another %s", key, s.op, op)
		}
		answer, _ := s.answer.(R)
		return answer, s.err
	}
	answer, err := do()
	if key != uuid.Nil && err == nil {
		f.answers[key] = stored{op, digest, answer, err}
	}
	if after != nil {
		return none, after
	}
	return answer, err
}

// held finds a lease for a write and checks what it carries.
func (f *fakePlane) held(l Lease) (*job, error) {
	j := f.byLease[l.ID]
	switch {
	case j == nil:
		return nil, refusal(domain.KindNotFound, "attempt_unknown")
	case secretSHA256(l.Token) != j.hash || l.Epoch != j.offer.Epoch:
		return nil, refusal(domain.KindForbidden, "not_lease_holder")
	case j.closed:
		return nil, refusal(domain.KindGone, "attempt_closed")
	case j.lapsed:
		return j, refusal(domain.KindConflict, "stale_epoch")
	}
	return j, nil
}

func (b *boundPlane) Register(ctx context.Context, key uuid.UUID, req wire.Registration) (wire.Registered, error) {
	f := b.f
	return call(ctx, b, "register", key, req, func() (wire.Registered, error) {
		switch {
		case b.bearer == f.enrol && (f.runner.IsZero() || f.runner == req.RunnerID):
			f.runner, f.secret = req.RunnerID, req.TokenSHA256
		case f.runner == req.RunnerID && secretSHA256(strings.TrimPrefix(b.bearer, "ep_"+f.tokenID.String()+"_")) == f.secret:
		default:
			return wire.Registered{}, refusal(domain.KindForbidden, "enrolment_refused")
		}
		f.drain = false // it ends with the process that was drained
		return wire.Registered{RunnerID: req.RunnerID, TokenID: f.tokenID, Pool: "pool", Status: "active", Slots: req.Slots, Timing: f.timing}, nil
	})
}

func (b *boundPlane) Drain(ctx context.Context, _ domain.RunnerID, key uuid.UUID, reason string) error {
	_, err := call(ctx, b, "drain", key, reason, func() (struct{}, error) {
		b.f.drain = true
		b.f.wakeLocked()
		return struct{}{}, nil
	})
	return err
}

func (b *boundPlane) Commands(ctx context.Context, runner domain.RunnerID, wait time.Duration, req wire.CommandsRequest) (wire.Commands, error) {
	f := b.f
	f.mu.Lock()
	f.asked = append(f.asked, req)
	f.mu.Unlock()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		news := f.news
		answer, any := f.commandsLocked(req)
		f.mu.Unlock()
		if !any {
			select {
			case <-news:
				continue
			case <-deadline.C:
			case <-ctx.Done():
				return wire.Commands{}, ctx.Err()
			}
		}
		return call(ctx, b, "commands", uuid.Nil, req, func() (wire.Commands, error) { return answer, nil })
	}
}

func (f *fakePlane) commandsLocked(req wire.CommandsRequest) (wire.Commands, bool) {
	known := map[string]bool{}
	for _, k := range req.Known {
		known[k] = true
	}
	answer := wire.Commands{Drain: f.drain && !known["drain"]}
	for _, hash := range req.TokenSHA256 {
		if j := f.byHash[hash]; j != nil {
			if !j.started && j.released == "" && !j.closed {
				answer.Offers = append(answer.Offers, j.offer)
			}
			continue
		}
		if len(f.jobs) == 0 || f.drain {
			continue
		}
		j := f.jobs[0]
		f.jobs = f.jobs[1:]
		j.hash, j.offer.TokenSHA256 = hash, hash
		f.byHash[hash], f.byLease[j.offer.LeaseID] = j, j
		answer.Offers = append(answer.Offers, j.offer)
	}
	for id, j := range f.byLease {
		if j.stop != nil && !j.completed && !known["stop/"+id.String()] {
			answer.Stops = append(answer.Stops, *j.stop)
		}
		if (j.closed || j.lapsed) && known[id.String()] {
			answer.Gone = append(answer.Gone, id)
		}
	}
	for _, r := range f.revoke {
		if !known["revoke/"+r.AttemptID.String()] {
			answer.Revoke = append(answer.Revoke, r)
		}
	}
	return answer, len(answer.Offers)+len(answer.Stops)+len(answer.Gone)+len(answer.Revoke) > 0 || answer.Drain
}

func (b *boundPlane) Report(ctx context.Context, runner domain.RunnerID, key uuid.UUID, req wire.ReportRequest) (wire.ReportAnswer, error) {
	f := b.f
	return call(ctx, b, "report", key, req, func() (wire.ReportAnswer, error) {
		f.calls[len(f.calls)-1].leases = len(req.Leases)
		answer := wire.ReportAnswer{NextSeconds: f.timing.ReportSeconds, FlushSeconds: f.flush}
		for _, l := range req.Leases {
			v := wire.LeaseVerdict{LeaseID: l.LeaseID, Status: "ok"}
			j, err := f.held(Lease{ID: l.LeaseID, Epoch: l.Epoch, Token: l.Token})
			var e *domain.Error
			switch {
			case errors.As(err, &e) && e.Kind == domain.KindGone:
				v.Status, v.Code = "gone", e.Code
			case errors.As(err, &e) && e.Kind == domain.KindConflict:
				v.Status, v.Code = "stale", e.Code
			case err != nil:
				v.Status, v.Code = "refused", e.Code
			default:
				j.reports++
				if !j.followByLog {
					v.FlushSeconds = j.followByReport
				}
				if l.Progress != nil && time.Since(j.progressed) >= f.progressEvery {
					j.progress, j.progressed = append(j.progress, *l.Progress), time.Now()
				} else {
					v.ProgressTooSoon = l.Progress != nil
				}
				if j.stop != nil && !j.completed {
					v.Stop = j.stop
				}
			}
			answer.Leases = append(answer.Leases, v)
		}
		return answer, nil
	})
}

func (b *boundPlane) PolicyBundle(ctx context.Context, digest string) ([]byte, error) {
	return call(ctx, b, "policy", uuid.Nil, nil, func() ([]byte, error) {
		if p, ok := b.f.policies[digest]; ok {
			return p, nil
		}
		return nil, refusal(domain.KindNotFound, "policy_unknown")
	})
}

func (b *boundPlane) Start(ctx context.Context, l Lease, key uuid.UUID, req wire.StartRequest) (wire.Started, error) {
	return call(ctx, b, "start", key, req, func() (wire.Started, error) {
		j, err := b.f.held(l)
		if err != nil {
			return wire.Started{}, err
		}
		if j.stop != nil && !j.started {
			j.closed = true
			return wire.Started{}, refusal(domain.KindGone, "attempt_closed")
		}
		j.started, j.isolation = true, req.Isolation
		return wire.Started{LeaseSeconds: 20, RunSeconds: 60}, nil
	})
}

func (b *boundPlane) Release(ctx context.Context, l Lease, key uuid.UUID, req wire.ReleaseRequest) error {
	_, err := call(ctx, b, "release", key, req, func() (any, error) {
		j, err := b.f.held(l)
		if err == nil && j.started {
			err = refusal(domain.KindConflict, "illegal_transition")
		}
		if err == nil {
			j.released = req.Reason
		}
		return nil, err
	})
	return err
}

func (b *boundPlane) Log(ctx context.Context, l Lease, key uuid.UUID, stream string, offset int64, frames []byte) (wire.LogAnswer, error) {
	f := b.f
	return call(ctx, b, "log", key, frames, func() (wire.LogAnswer, error) {
		j, err := f.held(l)
		if err != nil && (j == nil || !j.lapsed) {
			return wire.LogAnswer{}, err // a lapsed lease may still be salvaged
		}
		decoded, derr := bundle.DecodeFrames(frames, bundle.ChunkLimits())
		if derr != nil || len(decoded) == 0 {
			f.t.Errorf("a log chunk of %s at %d: %v, %d frames", stream, offset, derr, len(decoded))
			return wire.LogAnswer{}, refusal(domain.KindMalformed, "frames")
		}
		content := bundle.Chunk{Stream: bundle.Stream(stream), Frames: decoded}.Content()
		have := int64(len(j.logs[stream]))
		answer := wire.LogAnswer{Stream: stream, Offset: have, FlushSeconds: j.followByReport}
		if offset+int64(len(content)) <= have {
			return answer, nil
		}
		if offset != have {
			return answer, refusal(domain.KindOffset, "log_offset")
		}
		var cut error
		if f.logLimit != nil {
			if n := f.logLimit(stream, int64(len(content))); n < int64(len(content)) {
				content, cut = content[:n], errWire
			}
		}
		j.logs[stream] = append(j.logs[stream], content...)
		f.bodies = append(f.bodies, content)
		j.chunks[stream]++
		answer.Offset = have + int64(len(content))
		return answer, cut
	})
}

func (b *boundPlane) Evidence(ctx context.Context, l Lease, key uuid.UUID, req wire.EvidenceRequest) (wire.EvidenceAnswer, error) {
	return call(ctx, b, "evidence", key, req, func() (wire.EvidenceAnswer, error) {
		j, err := b.f.running(l)
		if err == nil {
			j.evidence = append(j.evidence, req)
		}
		return wire.EvidenceAnswer{}, err
	})
}

func (f *fakePlane) running(l Lease) (*job, error) {
	j, err := f.held(l)
	if err == nil && (!j.started || j.completed) {
		err = refusal(domain.KindConflict, "illegal_transition")
	}
	return j, err
}

func (b *boundPlane) Fact(ctx context.Context, l Lease, key uuid.UUID, req wire.FactRequest) error {
	_, err := call(ctx, b, "fact", key, req, func() (any, error) {
		j, err := b.f.running(l)
		if err == nil {
			j.facts = append(j.facts, req)
		}
		return nil, err
	})
	return err
}

func (b *boundPlane) Artifact(ctx context.Context, l Lease, key uuid.UUID, req wire.ArtifactRequest) (wire.ArtifactAnswer, error) {
	f := b.f
	return call(ctx, b, "artifact", key, req, func() (wire.ArtifactAnswer, error) {
		j, err := f.held(l)
		if err != nil {
			return wire.ArtifactAnswer{}, err
		}
		want, size := req.SHA256, req.Bytes
		if v := req.Vault; v != nil {
			want, size = v.ObjectSHA256, v.ObjectBytes
			if req.SHA256 != "" || req.Sensitivity != "secret" {
				f.t.Errorf("artifact %s: a secret one has no digest of its own: %+v", req.Name, req)
			}
		}
		data, put := j.objects[want]
		if put {
			sum := sha256.Sum256(data)
			if hex.EncodeToString(sum[:]) != want || int64(len(data)) != size {
				f.t.Errorf("artifact %s: the bytes put are not those announced", req.Name)
			}
		}
		if put || len(req.Inline) > 0 || req.Vault != nil && size == 0 {
			if _, twice := j.artifacts[req.Name]; twice {
				f.t.Errorf("artifact %s was registered twice", req.Name)
			}
			j.artifacts[req.Name] = req
			return wire.ArtifactAnswer{Stored: true}, nil
		}
		return wire.ArtifactAnswer{Upload: &wire.Upload{Method: "PUT", URL: l.ID.String() + "/" + want}}, nil
	})
}

func (b *boundPlane) Put(ctx context.Context, up wire.Upload, body io.Reader, size int64) error {
	data, err := io.ReadAll(io.LimitReader(body, size))
	if err != nil {
		return err
	}
	_, err = call(ctx, b, "put", uuid.Nil, nil, func() (any, error) {
		id, sum, _ := strings.Cut(up.URL, "/")
		leaseID, err := domain.ParseID[domain.LeaseID](id)
		if err != nil {
			return nil, err
		}
		b.f.byLease[leaseID].objects[sum] = bytes.Clone(data)
		b.f.bodies = append(b.f.bodies, bytes.Clone(data))
		return nil, nil
	})
	return err
}

func (b *boundPlane) Complete(ctx context.Context, l Lease, key uuid.UUID, req wire.CompleteRequest) error {
	_, err := call(ctx, b, "complete", key, req, func() (any, error) {
		j, err := b.f.held(l)
		if err != nil && j != nil {
			j.late = &req
		}
		if err == nil {
			j, err = b.f.running(l)
		}
		if err == nil {
			j.claim, j.completed = &req, true
		}
		return nil, err
	})
	return err
}

var _ Plane = (*boundPlane)(nil)
