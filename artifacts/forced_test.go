package artifacts_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// byOperator is the meta of a person's order.
func byOperator(request string) commands.Meta {
	m := meta(request)
	m.Actor = eventstore.Actor{Kind: "operator", ID: "alice", Role: domain.RoleOperator, Auth: "test"}
	return m
}

// An operator can end what waits for object storage. The manifest is served from
// the stream at once, and lies in object storage under the same digest later.
func TestAnOperatorSealsWhileObjectStorageIsAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	_, err := b.log(call, "stdout", 0, "some")
	b.must(err)
	if _, err := b.s.SealIncomplete(t.Context(), byOperator("early"), id, "no"); codeOf(err) != "illegal_transition" || domain.KindOf(err) != domain.KindConflict {
		t.Errorf("while it runs: %v", err)
	}
	b.complete(call, 1, map[string]string{"stdout": "some and more"})
	b.storage.set(errAway, nil)
	if _, err := b.s.SealIncomplete(t.Context(), byOperator("mute"), id, " "); codeOf(err) != "reason_required" {
		t.Errorf("without a reason: %v", err)
	}
	order := byOperator("seal")
	for range 2 { // its answer may be lost
		a, err := b.s.SealIncomplete(t.Context(), order, id, "the bucket is gone")
		if err != nil || a.Status != domain.StatusSucceeded || a.Bundle != "incomplete" {
			t.Fatalf("%s, bundle %s, %v", a.PublicState(), a.Bundle, err)
		}
	}
	if a, err := b.s.SealIncomplete(t.Context(), byOperator("again"), id, "is it?"); err != nil || a.Status != domain.StatusSucceeded {
		t.Errorf("once more: %v", err)
	}
	var types []string
	rows, err := b.pool.Query(t.Context(), "SELECT type FROM events WHERE stream = $1 AND actor_id = 'alice' AND actor_role = 'operator' ORDER BY version", "attempt/"+id.String())
	b.must(err)
	for rows.Next() {
		var s string
		b.must(rows.Scan(&s))
		types = append(types, strings.TrimPrefix(s, "execution.attempt."))
	}
	if got := strings.Join(types, " "); got != "seal_forced sealed succeeded" {
		t.Errorf("the operator's events: %s", got)
	}

	raw, err := b.logs.Manifest(t.Context(), id)
	b.must(err)
	m, err := bundle.DecodeManifest(raw)
	b.must(err)
	if m.State != bundle.Incomplete || !m.Unverified || len(m.Objects) != 1 || len(m.Gaps) != 5 {
		t.Errorf("%s, unverified %t, objects %+v, gaps %+v", m.State, m.Unverified, m.Objects, m.Gaps)
	}
	key := bundle.ManifestKey(m.Prefix(), bundle.Sum(raw))
	if _, err := b.object(key); !errors.Is(err, objects.ErrNotFound) {
		t.Errorf("before object storage is back: %v", err)
	}
	if _, err := b.log(call, "stdout", 4, " and more"); domain.KindOf(err) != domain.KindGone {
		t.Errorf("what comes afterwards: %v", err)
	}
	b.feed()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.sealer.Run(ctx) }()
	b.eventually("the worker tries", func() bool { return len(b.storage.tried()) > 0 })
	b.storage.set(nil, nil)
	b.eventually("the manifest is stored", func() bool {
		stored, err := b.object(key)
		return err == nil && string(stored) == string(raw)
	})
	cancel()
	b.must(<-ended)
	if got := b.manifest(id); !got.Unverified { // compares every object with the manifest
		t.Error("it was sealed once more")
	}
}

func TestAnOrderForAnUnknownAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	if _, err := b.s.SealIncomplete(t.Context(), byOperator("seal"), domain.NewID[domain.AttemptID](uuid.New()), "why"); domain.KindOf(err) != domain.KindNotFound {
		t.Errorf("%v", err)
	}
}

// The sealer and an operator at the same moment: one ends the attempt, the other
// sees how.
func TestTheSealerAndAnOperatorRace(t *testing.T) {
	t.Parallel()
	b := newBench(t, domain.FastProfile())
	won := map[string]int{}
	for i := range 6 {
		id, call := b.started()
		_, err := b.log(call, "stdout", 0, "some")
		b.must(err)
		b.complete(call, 0, map[string]string{"stdout": "some"})
		order := func() {
			a, err := b.s.SealIncomplete(t.Context(), byOperator("seal"), id, "in a hurry")
			if err != nil || a.Phase != domain.PhaseClosed {
				t.Errorf("the operator sees %s, %v", a.Phase, err)
			}
		}
		if i%2 == 0 { // while the bundle is built
			var once sync.Once
			b.storage.set(nil, func(string) { once.Do(order) })
			b.must(b.sealer.Seal(t.Context(), id))
		} else {
			var wg sync.WaitGroup
			wg.Go(order)
			if err := b.sealer.Seal(t.Context(), id); err != nil {
				t.Errorf("the sealer: %v", err)
			}
			wg.Wait()
		}
		b.storage.set(nil, nil)
		var seals int
		var actor string
		b.must(b.pool.QueryRow(t.Context(), "SELECT count(*), min(actor_kind) FROM events WHERE stream = $1 AND type = 'execution.attempt.sealed'", "attempt/"+id.String()).Scan(&seals, &actor))
		a := b.state(id)
		if seals != 1 || a.Phase != domain.PhaseClosed || (a.Bundle == "complete") != (actor == "service") {
			t.Errorf("%d seals, %s, %s by %s", seals, a.Phase, a.Bundle, actor)
		}
		won[actor]++
		if i%2 == 0 && actor != "operator" {
			t.Error("an order while the bundle is built comes first")
		}
	}
	t.Logf("ended by %v", won)
}
