package e2e_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// The figures of docs/design.md, §5 and §10, in both profiles and for a type that
// needs long to stop.
func TestLeaseProfiles(t *testing.T) {
	t.Parallel()
	type figures struct{ Report, Fence, Stop, Lease, Offer, Upload, Salvage int }
	for _, c := range []struct {
		profile, jobType string
		grace            int
		want             figures
	}{
		{"default", "verification", 0, figures{10, 80, 10, 90, 15, 600, 600}},
		{"default", "ssh", 0, figures{10, 80, 20, 100, 15, 600, 600}},
		{"default", "ansible", 0, figures{10, 80, 30, 110, 15, 600, 600}},
		{"default", "opentofu", 0, figures{10, 80, 90, 170, 15, 600, 600}},
		{"default", "verification", 300, figures{10, 80, 300, 380, 15, 600, 600}},
		{"fast", "verification", 0, figures{3, 14, 6, 20, 5, 20, 5}},
		{"fast", "ssh", 0, figures{3, 14, 15, 29, 5, 20, 5}},
		{"fast", "ansible", 0, figures{3, 14, 20, 34, 5, 20, 5}},
		{"fast", "opentofu", 0, figures{3, 14, 6, 20, 5, 20, 5}},
	} {
		p, ok := domain.ProfileByName(c.profile)
		if !ok {
			t.Fatalf("there is no profile %s", c.profile)
		}
		clocks := domain.EffectiveClocks(&domain.JobSpec{JobType: c.jobType, Controls: domain.Controls{TimeoutSeconds: 60, CancelGraceSeconds: c.grace}},
			p, domain.DefaultControlLimits(), 0)
		got := figures{int(p.ReportEvery / time.Second), int(p.Fence / time.Second), clocks.StopSeconds, clocks.LeaseSeconds, clocks.OfferSeconds, clocks.UploadSeconds, clocks.SalvageSeconds}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s, %s, grace %d (-want +got):\n%s", c.profile, c.jobType, c.grace, d)
		}
		if clocks.LeaseSeconds != got.Fence+clocks.StopSeconds {
			t.Errorf("%s, %s: a lease of %d s leaves no room for the stop after the fence", c.profile, c.jobType, clocks.LeaseSeconds)
		}
		if c.grace == 0 && p.Lease(c.jobType) != time.Duration(clocks.LeaseSeconds)*time.Second {
			t.Errorf("%s, %s: the profile's lease is %s, an attempt's %d s", c.profile, c.jobType, p.Lease(c.jobType), clocks.LeaseSeconds)
		}
		// Three reports may be lost in a row, and the fence is not near.
		if got.Fence < 4*got.Report {
			t.Errorf("%s: a fence of %d s at reports every %d s", c.profile, got.Fence, got.Report)
		}
	}
}

// What a service of a profile tells its runners is that profile, and the leases it
// gives last as long.
func TestServiceTellsItsProfile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"default", "fast"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := domain.ProfileByName(name) // both are there
			w := newWorld(t, setup{profile: p})
			s := w.startService()
			puppet := w.puppet(s.plane.URL(), 1)
			want := wire.Timing{Profile: name, ReportSeconds: int(p.ReportEvery / time.Second), FenceSeconds: int(p.Fence / time.Second), WaitSeconds: 30}
			if d := cmp.Diff(want, puppet.timing); d != "" {
				t.Errorf("the runner is told (-want +got):\n%s", d)
			}
			id := w.submit(s.control, tcp(openPort(t)))
			lease, _ := puppet.take()
			wantTerm(t, w, id, p.Offer)
			if err := puppet.start(lease); err != nil {
				t.Fatal(err)
			}
			wantTerm(t, w, id, p.Lease("verification"))
			cancel(t, w, s.control, id)
			if _, err := puppet.client.Complete(w.ctx, newKey(), lease, wire.CompleteRequest{Result: domain.ClaimStopped, FinishedAt: time.Now().UTC()}); err != nil {
				t.Error(err)
			}
			w.result(s.control, id)
		})
	}
}

// wantTerm checks how long the lease lasts, counted from the event that gave it.
func wantTerm(t *testing.T, w *world, id domain.AttemptID, term time.Duration) {
	t.Helper()
	events := w.stream(id)
	at := events[len(events)-1].Time
	if got := w.state(id).Lease.Until.Sub(at); got != term {
		t.Errorf("a lease lasts %s, want %s", got, term)
	}
}
