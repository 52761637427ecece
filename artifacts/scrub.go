package artifacts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// ScrubObjects is object storage whose every object can be looked at.
type ScrubObjects interface {
	Objects
	// Probe makes sure that the store gives back what was stored; nil means yes.
	Probe(ctx context.Context) error
}

// Scrubber reads every object that the ledger names and compares it with what the
// ledger says: log chunks, artifacts, manifests, and the bundles' own files. What
// differs is an event in the stream bundle/<attempt_id>, once for each object and
// problem; so is that it is right again. A store that is away is no finding.
//
// Any number of replicas may run one; one works at a time, and two that overlap do
// no harm.
type Scrubber struct {
	Store    eventstore.Store
	Commands *commands.Service
	Reads    *projections.Reader
	Objects  ScrubObjects
	Leases   Leases // for Run
	Holder   string
	Log      *slog.Logger

	// Round is how often Run looks at every object; 0 for a week.
	Round time.Duration
	// BytesPerSecond bounds what is read; 0 for 16 MiB. It goes before Round.
	BytesPerSecond int64

	// Stalls is how long a transfer of one object may make no progress; 0 for 30 s.
	Stalls time.Duration

	objects, bytes atomic.Int64
	sized          roundPace // of Run alone
}

// roundPace is the pace of a round. The size of all there is is asked once, however
// often the round stops at a store that is away.
type roundPace struct {
	round int64
	pace  int64
}

const (
	scrubberLease  = "scrubber"
	defaultRound   = 7 * 24 * time.Hour
	defaultScrub   = 16 << 20
	leastScrub     = 256 << 10 // bytes a second, so that a small store is not read all week
	scrubPage      = 100
	keepScrubEvery = 5 * time.Second
	objectCost     = 16 << 10 // bytes that a request counts for, beside what it reads
	bundleRequests = 5        // for the files of a sealed bundle and its manifest, which is read twice
)

// Counts are the objects and bytes that this process has looked at, for metrics.
func (s *Scrubber) Counts() (objects, bytes int64) { return s.objects.Load(), s.bytes.Load() }

func (s *Scrubber) round() time.Duration {
	if s.Round <= 0 {
		return defaultRound
	}
	return s.Round
}

func (s *Scrubber) limit() int64 {
	if s.BytesPerSecond <= 0 {
		return defaultScrub
	}
	return s.BytesPerSecond
}

// Run looks at everything again and again until ctx ends.
func (s *Scrubber) Run(ctx context.Context) error {
	workLease{s.Leases, scrubberLease, s.Holder, s.Log}.hold(ctx, s.rounds)
	return nil
}

// rounds goes on where the last scrubber stopped, until ctx ends.
func (s *Scrubber) rounds(ctx context.Context) {
	wait := firstRetry
	for ctx.Err() == nil {
		rest, err := s.goOn(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.Log.WarnContext(ctx, "stored objects cannot be looked at; it goes on where it stopped", "in", wait, "error", err)
			}
			pause(ctx, wait, nil)
			wait = min(2*wait, lastRetry)
			continue
		}
		wait = firstRetry
		pause(ctx, min(rest, time.Minute), nil)
	}
}

// goOn does what is left of the round, or begins one if it is time; rest is how
// long there is nothing to do.
func (s *Scrubber) goOn(ctx context.Context) (rest time.Duration, err error) {
	p, err := s.Reads.ScrubProgress(ctx)
	if err != nil {
		return 0, err
	}
	now, err := s.Reads.Now(ctx)
	if err != nil {
		return 0, err
	}
	if p.Round == 0 || p.EndedAt != nil {
		if rest = p.BeganAt.Add(s.round()).Sub(now); p.Round > 0 && rest > 0 {
			return rest, nil
		}
		p = projections.ScrubProgress{Round: p.Round + 1, BeganAt: now}
	}
	if s.sized.round != p.Round {
		size, err := s.Reads.StoredSize(ctx)
		if err != nil {
			return 0, err
		}
		s.sized = roundPace{p.Round, s.paceOf(size)}
	}
	w := s.walk(s.sized.pace)
	w.at = p
	w.keep = s.Reads.SetScrubProgress
	began := time.Now()
	if err := w.all(ctx); err != nil {
		return 0, errors.Join(err, w.save(context.WithoutCancel(ctx)))
	}
	if now, err = s.Reads.Now(ctx); err != nil {
		return 0, err
	}
	w.at.EndedAt, w.at.AttemptID, w.at.ObjectKey = &now, uuid.Nil, ""
	took := now.Sub(p.BeganAt)
	s.Log.InfoContext(ctx, "every stored object was looked at", "round", p.Round, "objects", w.at.Objects, "bytes", w.at.Bytes, "took", took.Round(time.Second), "without_a_break", time.Since(began).Round(time.Second))
	if took > s.round() {
		s.Log.WarnContext(ctx, "a round over all stored objects takes longer than it should; raise the limit of bytes per second, or the time for a round", "took", took.Round(time.Second), "round", s.round())
	}
	return 0, w.save(ctx)
}

// paceOf spreads a round over four fifths of its time, within the limit. Many small
// objects cost requests more than bytes.
func (s *Scrubber) paceOf(size projections.StoredSize) int64 {
	total := size.Bytes + objectCost*(size.Objects+bundleRequests*size.Bundles)
	seconds := max(1, s.round().Seconds()*0.8)
	return min(s.limit(), max(leastScrub, int64(float64(total)/seconds)))
}

// ScrubReport is what a pass saw.
type ScrubReport struct {
	Attempts int64                `json:"attempts"`
	Objects  int64                `json:"objects"`
	Bytes    int64                `json:"bytes"`
	Findings []domain.ScrubFailed `json:"findings"` // at most 1,000
	Omitted  int64                `json:"omitted"`  // findings beyond those
	Healed   []domain.ScrubHealed `json:"healed"`
}

// OK reports whether every object is what the ledger says.
func (r ScrubReport) OK() bool { return len(r.Findings) == 0 }

const maxScrubFindings = 1000

// Pass looks once at all objects, or at those of one attempt, as fast as the limit
// allows. meta makes the meta of each recorded finding; progress, if not nil, is
// called now and then. An error of the store or the database ends the pass; what
// was seen until then is in the report.
func (s *Scrubber) Pass(ctx context.Context, only *domain.AttemptID, meta func() commands.Meta, progress func(ScrubReport)) (ScrubReport, error) {
	w := s.walk(s.limit())
	w.report, w.meta, w.progress = &ScrubReport{Findings: []domain.ScrubFailed{}, Healed: []domain.ScrubHealed{}}, meta, progress
	var err error
	if only == nil {
		err = w.all(ctx)
	} else {
		var v projections.AttemptView
		if v, err = s.Reads.Attempt(ctx, *only); err == nil {
			err = w.attempt(ctx, *only, v.Phase == string(domain.PhaseClosed))
		}
	}
	if err != nil {
		err = fmt.Errorf("look at stored objects: %w", err)
	}
	return *w.report, err
}
