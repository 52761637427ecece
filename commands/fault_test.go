package commands_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// command prepares a state and returns a command that can be given again and
// again, with everything that its answer says.
type command struct {
	name string
	make func(b *bench) func(ctx context.Context) (answer any, err error)
	// events is how many the command adds.
	events int
	// once is set for a command that nobody repeats: again is a conflict.
	once bool
	// fresh is set for a command that is another one each time.
	fresh bool
}

// doing fits a command without an answer.
func doing(f func(ctx context.Context) error) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) { return nil, f(ctx) }
}

func everyCommand() []command {
	return slices.Concat(attemptCommands(), runnerCommands(), otherCommands(), inputCommands())
}

func attemptCommands() []command {
	return []command{
		{name: "submit", events: 2, make: func(b *bench) func(context.Context) (any, error) {
			spec, raw := newSpec()
			return func(ctx context.Context) (any, error) {
				s, err := b.s.Submit(ctx, meta("submit"), spec, raw)
				s.First = false // only the first answer says so
				return s, err
			}
		}},
		{name: "submit that policy refuses", events: 4, make: func(b *bench) func(context.Context) (any, error) {
			spec, _ := newSpec()
			spec.Target.Resources[0].Binding.Address = "192.0.2.1"
			return func(ctx context.Context) (any, error) {
				s, err := b.s.Submit(ctx, meta("submit"), spec, encode(spec))
				s.First = false
				return s, err
			}
		}},
		{name: "offer", events: 1, once: true, make: func(b *bench) func(context.Context) (any, error) {
			runner, id := b.enrolled(), b.submitted()
			text := b.specText(id)
			return func(ctx context.Context) (any, error) {
				return b.s.Offer(ctx, id, text, domain.Offer{RunnerID: runner, Pool: "default", TokenSHA256: sha("token")})
			}
		}},
		{name: "requeue", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			id, _ := b.offered(b.enrolled())
			m := meta("requeue")
			return func(ctx context.Context) (any, error) { return b.s.Requeue(ctx, m, id, "it hangs") }
		}},
		{name: "stop while it runs", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			id, _ := b.started(b.enrolled())
			m := meta("stop")
			return func(ctx context.Context) (any, error) { return b.s.Stop(ctx, m, id, domain.StopCancel, "enough") }
		}},
		{name: "stop while it waits", events: 3, make: func(b *bench) func(context.Context) (any, error) {
			id := b.submitted()
			m := meta("stop")
			return func(ctx context.Context) (any, error) { return b.s.Stop(ctx, m, id, domain.StopCancel, "enough") }
		}},
		{name: "tick", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			id, _ := b.offered(b.enrolled())
			b.pass(domain.FastProfile().Offer)
			return func(ctx context.Context) (any, error) { return b.s.Tick(ctx, id, commands.TickOptions{}) }
		}},
		{name: "seal", events: 2, make: func(b *bench) func(context.Context) (any, error) {
			id := b.finished(b.enrolled())
			return func(ctx context.Context) (any, error) {
				return b.s.Seal(ctx, id, func(domain.Attempt, time.Time) (domain.Seal, error) {
					return domain.Seal{Sealed: domain.Sealed{State: "complete", URI: "s3://bucket/m", ManifestSHA256: sha("m")}}, nil
				})
			}
		}},
	}
}

// runnerCommands are the writes of a runner under its lease.
func runnerCommands() []command {
	return []command{
		{name: "start", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.offered(b.enrolled())
			m := meta("start")
			return func(ctx context.Context) (any, error) { return b.s.Start(ctx, m, call, "process") }
		}},
		{name: "report", events: 2, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("report")
			parts := []commands.LeaseReport{{LeaseCall: call, Progress: &commands.Progress{Phase: "probing", Done: 1, Total: 2, Message: "half"}}}
			return func(ctx context.Context) (any, error) {
				r := b.s.Report(ctx, m, parts)
				return r[0].Attempt, r[0].Err
			}
		}},
		{name: "log", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("log")
			return func(ctx context.Context) (any, error) {
				return b.s.StoreLog(ctx, m, call, domain.StoreLog{Stream: "stdout", Bytes: 7, Key: "k", SHA256: sha("log"), ObjectBytes: 19})
			}
		}},
		{name: "evidence", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("evidence")
			e := domain.EvidenceRecorded{Name: "open", Type: "api_check", Result: "passed", Source: "stdout", ObservedAt: b.clock()}
			return func(ctx context.Context) (any, error) { return b.s.RecordEvidence(ctx, m, call, e, "it answered") }
		}},
		{name: "fact", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("fact")
			return doing(func(ctx context.Context) error {
				return b.s.RecordFact(ctx, m, call, domain.ProcessTreeReaped{Confirmed: true, Method: "subreaper"})
			})
		}},
		{name: "artifact", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("artifact")
			return doing(func(ctx context.Context) error { return b.s.RegisterArtifact(ctx, m, call, artifact("a", "bytes")) })
		}},
		{name: "complete", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.started(b.enrolled())
			m := meta("complete")
			return func(ctx context.Context) (any, error) {
				return b.s.Complete(ctx, m, call, claim(b.clock()), []byte(`{"agent":"1"}`))
			}
		}},
		{name: "release", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			_, call := b.offered(b.enrolled())
			m := meta("release")
			return doing(func(ctx context.Context) error { return b.s.Release(ctx, m, call, "declined") })
		}},
	}
}

func otherCommands() []command {
	return []command{
		{name: "change runner", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			runner, m := b.enrolled(), meta("pause")
			return func(ctx context.Context) (any, error) {
				return b.s.ChangeRunner(ctx, m, runner, "pause", "maintenance")
			}
		}},
		{name: "create token", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			m, id := meta("token"), domain.NewID[domain.TokenID](uuid.New())
			return doing(func(ctx context.Context) error {
				return b.s.CreateToken(ctx, m, domain.TokenCreated{TokenID: id, Name: "n", Role: domain.RoleViewer, SHA256: sha("t")})
			})
		}},
		{name: "revoke token", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			id := domain.NewID[domain.TokenID](uuid.New())
			b.must(b.s.CreateToken(b.t.Context(), meta("token"), domain.TokenCreated{TokenID: id, Name: "n", Role: domain.RoleViewer, SHA256: sha("t")}))
			m := meta("revoke")
			return doing(func(ctx context.Context) error { return b.s.RevokeToken(ctx, m, id, "it leaked") })
		}},
		{name: "create enrolment", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			m, id := meta("enrolment"), domain.NewID[domain.EnrolmentID](uuid.New())
			return doing(func(ctx context.Context) error {
				return b.s.CreateEnrolment(ctx, m, domain.EnrolmentCreated{EnrolmentID: id, Pool: "default", SHA256: sha("e"), ExpiresAt: b.clock().Add(time.Hour)})
			})
		}},
		{name: "resume", events: 1, fresh: true, make: func(b *bench) func(context.Context) (any, error) {
			return doing(func(ctx context.Context) error { return b.s.Resume(ctx, "no_sweep", time.Minute) })
		}},
		{name: "announce a policy", events: 1, make: func(b *bench) func(context.Context) (any, error) {
			return doing(func(ctx context.Context) error { return b.s.AnnouncePolicy(ctx, sha("bundle"), "") })
		}},
	}
}

func artifact(name, content string) domain.ArtifactCreated {
	return domain.ArtifactCreated{Name: name, Type: "report", Storage: "s3", URI: "s3://bucket/a", Key: "a", Sensitivity: "internal", Bytes: 5, SHA256: sha(content)}
}

// A command that failed and was not stored changes nothing and can be repeated.
// One that failed and was stored has one effect, and the repeat gets its answer.
func TestFailedCommandsRepeated(t *testing.T) {
	for _, c := range everyCommand() {
		for _, persisted := range []bool{false, true} {
			name := c.name + ", not persisted"
			if persisted {
				name = c.name + ", persisted"
			}
			t.Run(name, func(t *testing.T) {
				b := newBench(t)
				do := c.make(b)
				before := b.all()
				b.breakNext(persisted)
				if _, err := do(t.Context()); !errors.Is(err, eventstore.ErrUnavailable) {
					t.Fatalf("a broken append gave %v", err)
				}
				stored := 0
				if persisted {
					stored = c.events
				}
				if got := b.all() - before; got != stored {
					t.Errorf("%d events after the failure, want %d", got, stored)
				}
				if c.fresh {
					return
				}
				first, err := do(t.Context())
				if c.once && persisted {
					if domain.KindOf(err) != domain.KindConflict {
						t.Errorf("repeated: %v", err)
					}
				} else if err != nil {
					t.Fatalf("repeated: %v", err)
				}
				second, err := do(t.Context())
				if c.once {
					if domain.KindOf(err) != domain.KindConflict {
						t.Errorf("and again: %v", err)
					}
					second = first
				} else if err != nil {
					t.Fatalf("and again: %v", err)
				}
				if got := b.all() - before; got != c.events {
					t.Errorf("%d events in the end, want %d", got, c.events)
				}
				if d := cmp.Diff(text(b, first), text(b, second)); d != "" {
					t.Errorf("the answers differ: %s", d)
				}
			})
		}
	}
}

// text is an answer as it would be sent.
func text(b *bench, answer any) string {
	b.t.Helper()
	out, err := json.Marshal(answer)
	b.must(err)
	return string(out)
}

// Registration changes three streams. Whichever append fails, however, the same
// request heals it.
func TestRegistrationIsHealedByRepeating(t *testing.T) {
	for step := range 3 {
		for _, persisted := range []bool{false, true} {
			b := newBench(t)
			m, r := b.enrolment()
			before := b.all()
			appends := 0
			b.s.Store = &nthAppend{Store: b.store, hook: func() {
				if appends++; appends == step+1 {
					b.breakNext(persisted)
				}
			}}
			if _, err := b.s.RegisterRunner(t.Context(), m, r); !errors.Is(err, eventstore.ErrUnavailable) {
				t.Fatalf("step %d: %v", step, err)
			}
			first, err := b.s.RegisterRunner(t.Context(), m, r)
			if err != nil {
				t.Fatalf("step %d, persisted %t: repeated: %v", step, persisted, err)
			}
			second, err := b.s.RegisterRunner(t.Context(), m, r)
			if d := cmp.Diff(text(b, first), text(b, second)); d != "" || err != nil {
				t.Errorf("step %d, persisted %t: %s, %v", step, persisted, d, err)
			}
			if got := b.all() - before; got != 3 {
				t.Errorf("step %d, persisted %t: %d events, want 3", step, persisted, got)
			}
			// The enrolment is spent: another runner cannot use it.
			r.Registered.RunnerID = domain.NewID[domain.RunnerID](uuid.New())
			if _, err := b.s.RegisterRunner(t.Context(), meta("register"), r); codeOf(err) != domain.ErrEnrolment.Code {
				t.Errorf("a spent enrolment: %v", err)
			}
		}
	}
}

// nthAppend calls hook before each append.
type nthAppend struct {
	eventstore.Store
	hook func()
}

func (n *nthAppend) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	n.hook()
	return n.Store.Append(ctx, a)
}
