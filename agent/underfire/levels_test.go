package underfire

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
	"github.com/platform-core/execution-plane-service/policy"
)

// levelPolicy wants more for some actions than their jobs ask for.
const levelPolicy = `
isolation:
  - {actions: ["verify.x.ok"], environments: ["*"], at_least: process, image: made-here}
  - {actions: ["verify.x.setsid"], environments: ["*"], at_least: container, network: none, image: made-here}
  - {actions: ["verify.x.silent"], environments: ["*"], at_least: container, image: not-here}
images:
  - {name: made-here, rootfs: tests}
  - {name: not-here, rootfs: another}
`

// A whole agent gives what the offer and policy ask for, says what it did, ends a
// tree in a container, and gives back what it has no image for.
func TestAgentGivesTheLevelAsked(t *testing.T) {
	p := newPlane(t)
	bundle, err := policy.Overlay(policy.Builtin(), fstest.MapFS{"tests.yaml": &fstest.MapFile{Data: []byte(levelPolicy)}})
	if err != nil {
		t.Fatal(err)
	}
	p.bundle = bundle
	isolationtest.Engine(t, isolation.Bubblewrap)
	isolationtest.Engine(t, isolation.Runc)
	binary := publicBinary(t)
	rootfs := isolationtest.RootFS(t, binary)
	r := launch(t, p, func(s *settings) {
		s.Slots, s.Binary, s.Isolation = 4, binary, isolation.Levels()
		s.RootFS, s.Disk = map[string]string{"tests": rootfs}, 24<<20
	})
	asking := func(act, level string) *job {
		return p.submit(act, func(_ *domain.JobSpec, o *wire.Offer) { o.Isolation = level })
	}
	for level, j := range map[string]*job{
		isolation.LevelProcess: asking("ok", isolation.LevelProcess), isolation.LevelSandbox: asking("ok", isolation.LevelSandbox),
		isolation.LevelContainer: asking("ok", isolation.LevelContainer),
	} {
		v := r.over(p, j)
		if v.claim.Result != "succeeded" || p.head(j, "stdout") != "fine\n" {
			t.Errorf("%s: %+v; %s", level, v.claim, p.head(j, "events"))
		}
		if a := applied(t, v); a.Level != level || (level != isolation.LevelProcess) != (a.Engine != "" && a.Seccomp && a.NoCapabilities) {
			t.Errorf("%s: applied %+v", level, a)
		}
		if !strings.Contains(p.head(j, "events"), `"isolation":"`+level+`"`) {
			t.Errorf("%s: events %s", level, p.head(j, "events"))
		}
	}
	// Policy asks for a container where the job asks for nothing.
	j := asking("setsid", isolation.LevelProcess)
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "ready") })
	p.stopJob(j, domain.StopCancel)
	v := r.over(p, j)
	if a := applied(t, v); v.claim.Result != domain.ClaimStopped || a.Level != isolation.LevelContainer || a.Network != isolation.NetworkNone || a.RootFS != rootfs || a.Image != "made-here" {
		t.Errorf("%+v, applied %+v", v.claim, a)
	}
	if len(v.facts) != 1 || !v.facts[0].Confirmed {
		t.Errorf("the proof is %+v", v.facts)
	}
	// The one that fills its folders is ended for it, and the next finds room.
	filler := p.submit("escapes", func(s *domain.JobSpec, o *wire.Offer) {
		o.Isolation = isolation.LevelSandbox
		s.Inputs.Parameters, _ = json.Marshal(prize{Only: "fill_disk", Fill: 60, Linger: 60})
	})
	if v := r.over(p, filler); v.claim.Result != "storage_unavailable" || !v.facts[0].Confirmed {
		t.Errorf("the one that fills its folders: %+v; %s", v.claim, p.head(filler, "events"))
	}
	if !strings.Contains(p.head(filler, "events"), "took more than 25165824 bytes") {
		t.Errorf("why is not said: %s", p.head(filler, "events"))
	}
	// No image for it: it is given back, not run in less.
	j = asking("silent", isolation.LevelProcess)
	comesTrue(t, "it is given back", func() bool { return p.view(j).released })
	if v := p.view(j); v.started || v.claim != nil {
		t.Errorf("it was started: %+v", v)
	}
	// The agent dies under a container; the next one leaves nothing of it.
	j = asking("doubleFork", isolation.LevelSandbox)
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(j, "stdout"), "ready") })
	r.kill(syscall.SIGKILL)
	r.start(nil)
	if v := r.over(p, j); v.claim.Result != "agent_restarted" {
		t.Errorf("%+v", v.claim)
	}
	if left := r.left(j); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The bound of the disk is what ends it: without one it goes on, for much longer than
// there is between two looks.
func TestNothingBoundsTheFoldersOfAProcess(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Disk = 24 << 20 })
	j := p.submit("escapes", func(s *domain.JobSpec, _ *wire.Offer) {
		s.Inputs.Parameters, _ = json.Marshal(prize{Only: "fill_disk", Fill: 60, Linger: 2})
	})
	if v := r.over(p, j); v.claim.Result != "succeeded" || !strings.Contains(p.head(j, "stdout"), "nobody minds") {
		t.Errorf("%+v", v.claim)
	}
}

func applied(t *testing.T, j job) isolation.Applied {
	t.Helper()
	var env struct {
		Applied isolation.Applied `json:"isolation_applied"`
	}
	if err := json.Unmarshal(j.claim.Environment, &env); err != nil {
		t.Fatal(err)
	}
	return env.Applied
}

// A level that was named and does not work is an error at start, with what is missing.
func TestLevelThatDoesNotWorkIsAnErrorAtStart(t *testing.T) {
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Isolation = []string{isolation.LevelContainer} }) // and nothing to make one of
	if err := r.cmd.Wait(); err == nil {
		t.Fatal("it runs all the same")
	}
	b, err := os.ReadFile(r.log.Name())
	if err != nil || !strings.Contains(string(b), "isolation container cannot be given here") || !strings.Contains(string(b), "no root file system folder is named") {
		t.Errorf("it says %s, %v", b, err)
	}
}
