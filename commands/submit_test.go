package commands_test

import (
	"errors"
	"testing"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// Too many attempts wait: a new one is told to come later. What was submitted
// before, and what makes the queue shorter, always passes.
func TestAdmission(t *testing.T) {
	b := newBench(t, func(c *commands.Config) { c.MaxQueue = 2 })
	first, raw := newSpec()
	if _, err := b.s.Submit(t.Context(), meta("submit"), first, raw); err != nil {
		t.Fatal(err)
	}
	b.submitted()
	over, overRaw := newSpec()
	_, err := b.s.Submit(t.Context(), meta("submit"), over, overRaw)
	if domain.KindOf(err) != domain.KindOverloaded || codeOf(err) != "queue_full" {
		t.Errorf("over the limit: %v", err)
	}
	if s, err := b.s.Submit(t.Context(), meta("submit"), first, raw); err != nil || s.First {
		t.Errorf("a repeated submit: %+v, %v", s, err)
	}
	if _, err := b.s.Stop(t.Context(), meta("stop"), first.AttemptID, domain.StopCancel, "enough"); err != nil {
		t.Errorf("a stop: %v", err)
	}
	if s, err := b.s.Submit(t.Context(), meta("submit"), over, overRaw); err != nil || !s.First {
		t.Errorf("with room again: %+v, %v", s, err)
	}
}

// What was submitted once is answered the same, though its rules have changed; and
// what is not stored leaves no place in the queue taken.
func TestARepeatedSubmitMeetsNoRules(t *testing.T) {
	b := newBench(t, func(c *commands.Config) { c.MaxQueue = 1 })
	spec, raw := newSpec()
	broken := *spec
	broken.Controls.TimeoutSeconds = 0
	if _, err := b.s.Submit(t.Context(), meta("submit"), &broken, encode(&broken)); domain.KindOf(err) != domain.KindInvalid {
		t.Errorf("a spec that breaks rules: %v", err)
	}
	first, err := b.s.Submit(t.Context(), meta("submit"), spec, raw)
	if err != nil || !first.First {
		t.Fatalf("%+v, %v", first, err)
	}
	stricter := b.s.Config
	stricter.Limits.MaxTimeout = 1
	later := commands.New(stricter)
	again, err := later.Submit(t.Context(), meta("submit"), spec, raw)
	if err != nil || again.First || again.Receipt != first.Receipt || again.SpecDigest != first.SpecDigest {
		t.Errorf("again: %+v, %v", again, err)
	}
	_, err = later.Submit(t.Context(), meta("submit"), &broken, encode(&broken))
	var e *domain.Error
	if !errors.As(err, &e) || e.Code != domain.ErrAttemptExists.Code || e.Details["stored_sha256"] != first.SpecDigest || len(e.Details) != 2 {
		t.Errorf("another spec under its id: %v", err)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	b := newBench(t)
	spec, raw := newSpec()
	d, err := b.s.DryRun(t.Context(), spec, raw)
	if err != nil || len(d.Violations) != 0 || !d.Policy.Allow {
		t.Errorf("%+v, %v", d, err)
	}
	spec.Target.Resources[0].Binding.Address = "192.0.2.1"
	if d, err = b.s.DryRun(t.Context(), spec, encode(spec)); err != nil || d.Policy.Allow || len(d.Policy.Reasons) == 0 {
		t.Errorf("what policy refuses: %+v, %v", d, err)
	}
	spec.Controls.TimeoutSeconds = 0
	if d, err = b.s.DryRun(t.Context(), spec, encode(spec)); err != nil || len(d.Violations) == 0 {
		t.Errorf("what breaks rules: %+v, %v", d, err)
	}
	if n := b.all(); n != 0 {
		t.Errorf("%d events", n)
	}
}
