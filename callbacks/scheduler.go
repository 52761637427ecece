package callbacks

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
	"github.com/platform-core/execution-plane-service/projections"
)

// CheckpointName names the scheduler's place among the results.
const CheckpointName = "callbacks"

const (
	schedulePage     = 200
	scheduleParallel = 16
)

// schedule turns stored results into callbacks until ctx ends.
func (w *Worker) schedule(ctx context.Context) {
	for {
		var woken <-chan struct{}
		if w.Woken != nil {
			woken = w.Woken()
		}
		more, err := w.schedulePage(ctx)
		w.noteBehind(err)
		wait := scheduleEvery
		switch {
		case err != nil && ctx.Err() == nil:
			w.Log.WarnContext(ctx, "results cannot be scheduled; it is tried again from the same place", "error", err)
			wait, woken = troubleEvery, nil
		case more:
			wait = 0
		}
		if !pause(ctx, wait, woken) {
			return
		}
	}
}

// schedulePage schedules the next results. The checkpoint moves over those that
// were scheduled everywhere, and never past one that was not. more says that there
// may be others.
func (w *Worker) schedulePage(ctx context.Context) (more bool, err error) {
	at, err := w.Reads.Checkpoint(ctx, CheckpointName)
	if err != nil {
		return false, err
	}
	page, err := w.Reads.ResultsAfter(ctx, at.Seq, schedulePage)
	if err != nil || len(page) == 0 {
		return false, err
	}
	failed := make([]error, len(page))
	slots := make(chan struct{}, scheduleParallel)
	var wg sync.WaitGroup
	for i := range page {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			failed[i] = w.scheduleOne(ctx, page[i])
		})
	}
	wg.Wait()
	done, err := doneUntil(page, failed)
	if done != nil {
		crashpoint.Here("callback.scheduled")
		if err := w.Reads.SetCheckpoint(ctx, CheckpointName, *done); err != nil {
			return false, err
		}
	}
	return err == nil, err
}

// doneUntil is the place of the last result before the first failure, and that
// failure.
func doneUntil(page []projections.StoredResult, failed []error) (*eventstore.Cursor, error) {
	var done *eventstore.Cursor
	for i, r := range page {
		if failed[i] != nil {
			return done, failed[i]
		}
		at := r.Cursor()
		done = &at
	}
	return done, nil
}

// scheduleOne makes the callbacks of one result, and wakes their senders.
func (w *Worker) scheduleOne(ctx context.Context, r projections.StoredResult) error {
	names := w.Endpoints.Match(r.JobType, r.Environment, r.CallbackRef)
	if len(names) == 0 && r.CallbackRef != "" {
		w.noteUnknown()
		w.Log.WarnContext(ctx, "a result names a callback endpoint that is not configured, and is not delivered; it is found in GET /v1/results",
			"attempt_id", r.AttemptID.String(), "endpoint", r.CallbackRef)
	}
	for _, name := range names {
		x, _ := w.Endpoints.find(name)
		err := w.Commands.ScheduleCallback(ctx, name, r.AttemptID, domain.ResultDigest{SHA256: r.SHA256, Bytes: int64(len(r.Body))}, x.window)
		if changed(err) {
			// It stands in the ledger with other bytes; its tries will tell. The results
			// behind it are not to wait.
			w.Log.ErrorContext(ctx, "a stored result is not the one that was scheduled before; run: execution-plane projections check",
				"endpoint", name, "attempt_id", r.AttemptID.String(), "error", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("schedule the result of %s for %s: %w", r.AttemptID, name, err)
		}
		if s, ok := w.sender(name); ok {
			s.wake()
		}
	}
	return nil
}

func changed(err error) bool {
	var e *domain.Error
	return errors.As(err, &e) && e.Code == "result_changed"
}

func (w *Worker) noteBehind(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.behind = ""
	if err != nil {
		w.behind = err.Error()
	}
}

func (w *Worker) noteUnknown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unknown++
}
