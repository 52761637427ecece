package underfire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// plane is a service in memory behind HTTP. It keeps the first bytes and the
// digest of each log, and holds the agent to the offsets.
type plane struct {
	t   *testing.T
	url string

	mu      sync.Mutex
	news    chan struct{}
	runner  domain.RunnerID
	token   domain.TokenID
	waiting []*job
	byHash  map[string]*job
	byLease map[domain.LeaseID]*job
	reports int
	timing  wire.Timing
	drain   bool
	bundle  *policy.Bundle
	// fault is asked before and after each write; true breaks the connection.
	fault func(path string, after bool) bool
}

// kept is how much of a log's beginning is kept.
const kept = 256 << 10

type stored struct {
	bytes int64
	sum   hash.Hash
	head  []byte
}

// job is one attempt and its lease.
type job struct {
	offer     wire.Offer
	hash      string
	started   bool
	released  bool
	lost      bool
	stop      *wire.Stop
	logs      map[string]*stored
	facts     []wire.ReapedFact
	decided   int      // facts of policy decisions
	accessors []string // of tokens in Vault
	revoked   []string
	prints    int
	resolved  bool
	evidence  int
	artifacts []string
	claim     *wire.CompleteRequest
	late      *wire.CompleteRequest // after the lease was lost
	stopped   time.Time             // when the stop was told first
	claimed   time.Time
}

func newPlane(t *testing.T) *plane {
	p := &plane{t: t, news: make(chan struct{}), token: domain.NewID[domain.TokenID](uuid.New()),
		timing: wire.Timing{Profile: "fast", ReportSeconds: 3, FenceSeconds: 50, WaitSeconds: 30},
		byHash: map[string]*job{}, byLease: map[domain.LeaseID]*job{}, bundle: policy.Builtin()}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.url = s.URL
	return p
}

// submit queues a job whose executor acts as named.
func (p *plane) submit(acting string, change func(*domain.JobSpec, *wire.Offer)) *job {
	spec := domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		PlanNodeID: "node", JobType: "verification", Action: "verify.x." + acting,
		Target: domain.Target{Environment: "dev"}, Controls: domain.Controls{TimeoutSeconds: 600},
	}
	o := wire.Offer{
		Epoch: 1, AttemptID: spec.AttemptID, OperationID: spec.OperationID, PlanNodeID: spec.PlanNodeID,
		OfferSeconds: 30, Isolation: "process", PolicyDigest: p.bundle.Digest(),
		Clocks: domain.Clocks{Profile: "fast", OfferSeconds: 30, RunSeconds: 600, StopSeconds: 1, LeaseSeconds: 60, UploadSeconds: 60, SalvageSeconds: 5},
	}
	if change != nil {
		change(&spec, &o)
	}
	o.LeaseID = domain.LeaseIDOf(o.AttemptID, o.Epoch)
	raw, err := json.Marshal(spec)
	if err != nil {
		p.t.Fatal(err)
	}
	o.JobSpec = raw
	j := &job{offer: o, logs: map[string]*stored{}}
	p.with(func() { p.waiting = append(p.waiting, j) })
	return j
}

// with runs fn under the lock and wakes held requests.
func (p *plane) with(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn()
	close(p.news)
	p.news = make(chan struct{})
}

func (p *plane) stopJob(j *job, reason domain.StopReason) {
	p.with(func() {
		j.stop = &wire.Stop{LeaseID: j.offer.LeaseID, AttemptID: j.offer.AttemptID, Epoch: j.offer.Epoch, Reason: reason,
			DeadlineSeconds: 31, LadderSeconds: j.offer.Clocks.StopSeconds}
	})
}

// head is the beginning of a log so far.
func (p *plane) head(j *job, stream string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := j.logs[stream]; l != nil {
		return string(l.head)
	}
	return ""
}

func (p *plane) bytes(j *job, stream string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := j.logs[stream]; l != nil {
		return l.bytes
	}
	return 0
}

// view is a copy for assertions.
func (p *plane) view(j *job) job {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *j
}

// whole says whether every byte that was claimed is stored, once.
func (p *plane) whole(j *job) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j.claim == nil {
		return fmt.Errorf("nothing is claimed")
	}
	for _, c := range j.claim.Logs {
		l := j.logs[c.Stream]
		if l == nil || l.bytes != c.Bytes || hex.EncodeToString(l.sum.Sum(nil)) != c.SHA256 {
			return fmt.Errorf("log %s: %d bytes are claimed, and what is stored differs: %+v", c.Stream, c.Bytes, l)
		}
	}
	if len(j.claim.Logs) != len(j.logs) {
		return fmt.Errorf("%d logs are claimed and %d stored", len(j.claim.Logs), len(j.logs))
	}
	return nil
}

// refusal is an answer other than success.
type refusal struct {
	status int
	code   string
	offset int64
}

func (r refusal) Error() string { return r.code }

func (p *plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	held := len(path) == 3 && path[2] == "commands"
	if !held && p.breaks(r.URL.Path, false) {
		panic(http.ErrAbortHandler)
	}
	answer, err := p.route(r, path, body)
	if !held && p.breaks(r.URL.Path, true) {
		panic(http.ErrAbortHandler)
	}
	if raw, ok := answer.([]byte); ok && err == nil {
		_, _ = w.Write(raw)
		return
	}
	if refused, ok := err.(refusal); ok { //nolint:errorlint // made by this file, never wrapped
		problem := wire.Problem{Title: refused.code, Status: refused.status, Detail: refused.code, Code: refused.code, Details: map[string]any{"offset": refused.offset}}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(refused.status)
		answer = problem
	} else if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (p *plane) breaks(path string, after bool) bool {
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	return fault != nil && fault(path, after)
}

func (p *plane) route(r *http.Request, path []string, body []byte) (any, error) {
	switch {
	case path[0] == "policy":
		return p.bundle.Bytes(), nil
	case path[0] == "runners" && len(path) == 1:
		var req wire.Registration
		err := json.Unmarshal(body, &req)
		p.with(func() { p.runner, p.drain = req.RunnerID, false })
		return wire.Registered{RunnerID: req.RunnerID, TokenID: p.token, Pool: "pool", Status: "active", Slots: req.Slots,
			Timing: p.timing}, err
	case path[0] == "runners" && path[2] == "commands":
		var req wire.CommandsRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, err
		}
		return p.commands(r, req)
	case path[0] == "runners" && path[2] == "drain":
		p.with(func() { p.drain = true })
		return wire.Ack{}, nil
	case path[0] == "runners":
		var req wire.ReportRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, err
		}
		return p.report(req), nil
	}
	return p.lease(r, path, body)
}

func (p *plane) commands(r *http.Request, req wire.CommandsRequest) (any, error) {
	seconds, _ := strconv.Atoi(r.URL.Query().Get("wait"))
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	for {
		p.mu.Lock()
		news := p.news
		answer, any := p.newsLocked(req)
		p.mu.Unlock()
		if any {
			return answer, nil
		}
		select {
		case <-news:
		case <-end.C:
			return answer, nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func (p *plane) newsLocked(req wire.CommandsRequest) (wire.Commands, bool) {
	known := map[string]bool{}
	for _, k := range req.Known {
		known[k] = true
	}
	c := wire.Commands{Drain: p.drain && !known["drain"]}
	for _, h := range req.TokenSHA256 {
		if j := p.byHash[h]; j != nil {
			if !j.started && !j.released {
				c.Offers = append(c.Offers, j.offer)
			}
			continue
		}
		if len(p.waiting) > 0 && !p.drain {
			j := p.waiting[0]
			p.waiting = p.waiting[1:]
			j.hash, j.offer.TokenSHA256 = h, h
			p.byHash[h], p.byLease[j.offer.LeaseID] = j, j
			c.Offers = append(c.Offers, j.offer)
		}
	}
	for id, j := range p.byLease {
		if j.stop != nil && j.claim == nil && !known["stop/"+id.String()] {
			if j.stopped.IsZero() {
				j.stopped = time.Now()
			}
			c.Stops = append(c.Stops, *j.stop)
		}
		if j.lost && known[id.String()] {
			c.Gone = append(c.Gone, id)
		}
	}
	return c, c.Drain || len(c.Offers)+len(c.Stops)+len(c.Gone) > 0
}

func (p *plane) report(req wire.ReportRequest) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports++
	a := wire.ReportAnswer{NextSeconds: p.timing.ReportSeconds, FlushSeconds: 1, Leases: []wire.LeaseVerdict{}}
	for _, l := range req.Leases {
		v := wire.LeaseVerdict{LeaseID: l.LeaseID, Status: "ok"}
		if j := p.byLease[l.LeaseID]; j == nil || j.lost {
			v.Status, v.Code = "stale", "stale_epoch"
		}
		a.Leases = append(a.Leases, v)
	}
	return a
}

func (p *plane) lease(r *http.Request, path []string, body []byte) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, err := domain.ParseID[domain.LeaseID](path[1])
	if err != nil {
		return nil, err
	}
	j := p.byLease[id]
	sum := sha256.Sum256([]byte(r.Header.Get(wire.HeaderLeaseToken)))
	if j == nil || hex.EncodeToString(sum[:]) != j.hash {
		return nil, refusal{status: http.StatusForbidden, code: "not_lease_holder"}
	}
	if j.lost && path[2] != "log" {
		if path[2] == "complete" {
			j.late = new(wire.CompleteRequest)
			if err := json.Unmarshal(body, j.late); err != nil {
				return nil, err
			}
		}
		return nil, refusal{status: http.StatusConflict, code: "stale_epoch"}
	}
	switch path[2] {
	case "start":
		j.started = true
		return wire.Started{LeaseSeconds: 60, RunSeconds: 600}, nil
	case "release":
		j.released = true
		return wire.Ack{}, nil
	case "log":
		offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
		return p.log(j, r.URL.Query().Get("stream"), offset, body)
	case "evidence":
		j.evidence++
		return wire.EvidenceAnswer{}, nil
	case "facts":
		var f wire.FactRequest
		err := json.Unmarshal(body, &f)
		if f.ProcessTreeReaped != nil && len(j.facts) == 0 {
			j.facts = append(j.facts, *f.ProcessTreeReaped)
		}
		if f.PolicyDecided != nil {
			j.decided++
		}
		if f.SecretTokenIssued != nil {
			j.accessors = append(j.accessors, f.SecretTokenIssued.Accessor)
		}
		j.resolved = j.resolved || f.SecretResolved != nil
		if f.SecretRevoked != nil {
			j.revoked = append(j.revoked, f.SecretRevoked.Accessors...)
		}
		return wire.Ack{}, err
	case "fingerprints":
		if r.Method == http.MethodGet {
			return wire.FingerprintKey{Key: make([]byte, 32), Limit: 1 << 19}, nil
		}
		j.prints += len(body) / 8
		return wire.FingerprintsAnswer{Prints: j.prints}, nil
	case "artifacts":
		var a wire.ArtifactRequest
		err := json.Unmarshal(body, &a)
		j.artifacts = append(j.artifacts, a.Name)
		return wire.ArtifactAnswer{Stored: true}, err
	case "complete":
		var c wire.CompleteRequest
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, err
		}
		if j.claim == nil {
			j.claim, j.claimed = &c, time.Now()
		}
		return wire.Ack{}, nil
	}
	return nil, refusal{status: http.StatusNotFound, code: "unknown"}
}

func (p *plane) log(j *job, stream string, offset int64, frames []byte) (any, error) {
	decoded, err := bundle.DecodeFrames(frames, bundle.ChunkLimits())
	if err != nil || len(decoded) == 0 {
		p.t.Errorf("a log chunk of %s at %d: %v, %d frames", stream, offset, err, len(decoded))
		return nil, refusal{status: http.StatusBadRequest, code: "frames"}
	}
	content := bundle.Chunk{Stream: bundle.Stream(stream), Frames: decoded}.Content()
	l := j.logs[stream]
	have := int64(0)
	if l != nil {
		have = l.bytes
	}
	if offset > have {
		return nil, refusal{status: http.StatusRequestedRangeNotSatisfiable, code: "log_offset", offset: have}
	}
	if end := offset + int64(len(content)); end > have {
		if l == nil {
			l = &stored{sum: sha256.New()}
			j.logs[stream] = l
		}
		fresh := content[have-offset:]
		l.sum.Write(fresh)
		l.head = append(l.head, fresh[:min(len(fresh), max(0, kept-len(l.head)))]...)
		l.bytes = end
	}
	return wire.LogAnswer{Stream: stream, Offset: max(have, offset+int64(len(content)))}, nil
}
