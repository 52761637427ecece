package sim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/memory"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/sim"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
	"github.com/platform-core/execution-plane-service/runners"
)

// verdict is how long a check of one history may take.
const verdict = 60 * time.Second

// patient is a profile in which no timer fires while a test runs: time is not
// part of the specification.
func patient() domain.Profile {
	p := domain.DefaultProfile()
	p.Offer, p.Fence, p.Salvage, p.Upload = time.Hour, time.Hour, time.Hour, time.Hour
	return p
}

func replicas(n int, store eventstore.Store, index commands.Index) []*commands.Service {
	out := make([]*commands.Service, n)
	for i := range out {
		out[i] = commands.New(commands.Config{
			Store: store, Index: index, Policy: policy.BuiltinDev, Actions: runners.Catalogue(), Profile: patient(),
			Limits: domain.DefaultControlLimits(), StorageBase: "s3://bucket/",
		})
	}
	return out
}

func inMemory(seed uint64) *sim.Clients {
	rows := sim.NewRows()
	store := memory.Open(projections.Tables(), memory.Options{OnRows: rows.Apply})
	return &sim.Clients{
		Services: replicas(3, sim.Flaky{Store: store, Every: 20}, rows), Number: 16, Attempts: 40, Calls: 75, Seed: seed, Row: rows.Read,
	}
}

func check(t *testing.T, history []porcupine.Operation) (porcupine.CheckResult, string) {
	t.Helper()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(sim.Model(), history, verdict)
	unknown := 0
	for _, op := range history {
		if op.Output.(sim.Output).Unknown {
			unknown++
		}
	}
	t.Logf("%d calls, %d of them without an answer: %s after %s", len(history), unknown, result, time.Since(began).Round(time.Millisecond))
	return result, sim.Blame(info, history)
}

func linearizable(t *testing.T, c *sim.Clients) {
	t.Helper()
	history, err := c.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(history) < 1000 {
		t.Errorf("a history of %d calls shows little", len(history))
	}
	if got, why := check(t, history); got != porcupine.Ok {
		t.Errorf("the history is %s: %s", got, why)
	}
}

func TestHistoriesInMemory(t *testing.T) {
	for seed := range uint64(10) {
		linearizable(t, inMemory(seed))
	}
}

func TestHistoriesOnPostgres(t *testing.T) {
	for seed := range uint64(2) {
		pool := pgtest.NewPool(t)
		store := postgres.Open(pool, projections.Tables(), postgres.Options{})
		t.Cleanup(store.Close)
		reader := projections.NewReader(pool)
		linearizable(t, &sim.Clients{
			Services: replicas(3, sim.Flaky{Store: store, Every: 20}, commands.NewIndex(reader)), Number: 16, Attempts: 30, Calls: 65, Seed: seed,
			Row: func(ctx context.Context, id domain.AttemptID) (sim.Output, error) {
				v, err := reader.Attempt(ctx, id)
				if err != nil {
					return sim.Output{}, err
				}
				return sim.RowRead(domain.Phase(v.Phase), v.Epoch, v.StopReason, v.FailureCode, v.Category != nil), nil
			},
		})
	}
}

// The checker is worth what it refuses: each of these histories has one lie in it.
func TestPlantedViolationsAreRefused(t *testing.T) {
	type change func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool)
	lies := map[string]change{
		"a start that was refused succeeded": func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool) {
			hit := in.Op == "start" && (out.Code == "stale_epoch" || out.Code == "attempt_closed")
			out.Code = "ok"
			return in, out, hit
		},
		"an offer gave an epoch twice": func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool) {
			if in.Op != "offer" || out.Seen == nil || out.Seen.Epoch < 2 {
				return in, out, false
			}
			r := *out.Seen
			r.Epoch--
			out.Seen = &r
			return in, out, true
		},
		"an outcome changed": func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool) {
			if in.Op != "read" || out.Seen == nil || out.Seen.Outcome != "ok" {
				return in, out, false
			}
			r := *out.Seen
			r.Outcome = "lease_lost"
			out.Seen = &r
			return in, out, true
		},
		"a read saw the past": func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool) {
			if in.Op != "read" || out.Seen == nil || out.Seen.Phase != domain.PhaseClosed {
				return in, out, false
			}
			r := *out.Seen
			r.Phase, r.Outcome = domain.PhaseRunning, ""
			out.Seen = &r
			return in, out, true
		},
		"a completion was acknowledged and is gone": func(in sim.Input, out sim.Output) (sim.Input, sim.Output, bool) {
			hit := in.Op == "complete" && out.Code == "lease_lost"
			out.Code = "ok"
			return in, out, hit
		},
	}
	var history []porcupine.Operation
	// What happens depends on who comes first: histories are gathered until every lie
	// has a call that it can be told of.
	told := func() bool {
		for _, lie := range lies {
			if !slices.ContainsFunc(history, func(op porcupine.Operation) bool {
				in, out := op.Input.(sim.Input), op.Output.(sim.Output)
				if out.Unknown {
					return false
				}
				_, _, hit := lie(in, out)
				return hit
			}) {
				return false
			}
		}
		return true
	}
	for seed := uint64(0); seed < 3 || seed < 30 && !told(); seed++ {
		h, err := inMemory(100 + seed).Record(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range h {
			in := op.Input.(sim.Input)
			in.Which += 1000 * int(seed)
			op.Input = in
			history = append(history, op)
		}
	}
	if got, why := check(t, history); got != porcupine.Ok {
		t.Fatalf("the true history is %s: %s", got, why)
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			told := slices.Clone(history)
			i := slices.IndexFunc(told, func(op porcupine.Operation) bool {
				in, out := op.Input.(sim.Input), op.Output.(sim.Output)
				if out.Unknown {
					return false
				}
				_, _, hit := lie(in, out)
				return hit
			})
			if i < 0 {
				t.Fatal("no call of the history can be changed into this lie")
			}
			in, out, _ := lie(told[i].Input.(sim.Input), told[i].Output.(sim.Output))
			told[i].Input, told[i].Output = in, out
			if got, _ := check(t, told); got != porcupine.Illegal {
				t.Errorf("the checker says %s of: %s", got, fmt.Sprint(sim.Describe(in, out)))
			}
		})
	}
}
