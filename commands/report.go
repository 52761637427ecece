package commands

import (
	"context"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/domain"
)

// LeaseReport is one lease's part of an agent's report.
type LeaseReport struct {
	LeaseCall
	Progress *Progress
}

// Progress is the latest progress of a job.
type Progress struct {
	Phase       string
	Done, Total int64
	Message     string // at most maxProgressMessage bytes are kept
}

// ReportResult says what became of one part: the attempt as it is now, or why
// the part was refused.
type ReportResult struct {
	Attempt domain.Attempt
	// TooSoon says that the progress was not recorded, since it came too soon after the
	// one before. It must come again to be seen.
	TooSoon bool
	Err     error
}

const (
	maxProgressMessage = 500
	maxProgressPhase   = 100
	reportParallel     = 16
)

// Report takes the heartbeats and progress of all leases of a runner. Each part
// is a command of its own, with the id UUIDv5(report's id, attempt id), so a
// repeated report has one effect and one refused part harms no other.
func (s *Service) Report(ctx context.Context, m Meta, parts []LeaseReport) []ReportResult {
	out := make([]ReportResult, len(parts))
	var wg sync.WaitGroup
	slots := make(chan struct{}, reportParallel)
	for i, p := range parts {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i] = s.reportOne(ctx, m, p)
		})
	}
	wg.Wait()
	return out
}

func (s *Service) reportOne(ctx context.Context, m Meta, p LeaseReport) ReportResult {
	rec, err := s.Index.Lease(ctx, p.LeaseID)
	if err != nil {
		return ReportResult{Err: err}
	}
	m.CommandID = domain.DeriveCommandID(m.CommandID.UUID(), rec.AttemptID.String())
	var progress *domain.ProgressReport
	var d decision
	tooSoon := false
	if p.Progress != nil {
		progress = &domain.ProgressReport{Phase: clip(p.Progress.Phase, maxProgressPhase), Done: p.Progress.Done, Total: p.Progress.Total}
		progress.Message, d.texts = salted([]byte(clip(p.Progress.Message, maxProgressMessage)))
	}
	r, err := s.onLease(ctx, m, p.LeaseCall, "report", func(a domain.Attempt, f domain.Fence, now time.Time) (decision, error) {
		events, err := domain.DecideAttempt(a, domain.Report{Fence: f, Progress: progress}, now)
		out := decision{events: events}
		tooSoon = progress != nil && err == nil && a.Phase == domain.PhaseRunning
		for _, e := range events {
			if _, ok := e.(domain.Progressed); ok {
				out.texts, tooSoon = d.texts, false
			}
		}
		return out, err
	})
	return ReportResult{r.State, tooSoon && err == nil, err}
}

// clip cuts a text to n bytes at a character's edge.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
