package underfire

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// An executor of the agent's own, ordinary user reads neither the agent nor the
// shim, although it can read its own children; and what the agent reads of itself
// and of its processes, to name and end them, still works.
func TestSameUserCannotReadTheAgent(t *testing.T) {
	p := newPlane(t)
	dir := openTempDir(t)
	binary := filepath.Join(dir, "underfire.test")
	copyExecutable(t, binary)
	state := filepath.Join(dir, "state")
	r := &running{t: t, set: settings{URL: p.url, Dir: state, Binary: binary, Slots: 1}}
	var as *syscall.Credential
	if os.Geteuid() == 0 {
		as = &syscall.Credential{Uid: 64998, Gid: 64998}
		if err := os.Mkdir(state, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(state, 64998, 64998); err != nil {
			t.Fatal(err)
		}
	}
	r.start(as)
	t.Cleanup(func() { r.kill(syscall.SIGKILL) })
	j := p.submit("spies", nil)
	v := r.over(p, j)
	got := p.head(j, "stdout")
	if v.claim.Result != "succeeded" || !strings.Contains(got, "sibling environ true") || strings.Count(got, "\n") != 15 {
		t.Fatalf("claim %+v, stdout %q, stderr %q", v.claim, got, p.head(j, "stderr"))
	}
	for line := range strings.Lines(got) {
		if !strings.HasPrefix(line, "sibling") && !strings.HasSuffix(line, " false\n") {
			t.Errorf("the executor could: %s", line)
		}
	}
	// A tree that does not want to go is ended all the same.
	for _, acting := range []string{"closedDescriptors", "holdsPipes", "renames"} {
		k := p.submit(acting, nil)
		if acting == "renames" {
			comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(k, "stdout"), "ready") })
			p.stopJob(k, "cancel")
		}
		if v := r.over(p, k); len(v.facts) != 1 || !v.facts[0].Confirmed || len(r.left(k)) > 0 {
			t.Errorf("%s: facts %+v, left %v", acting, v.facts, r.left(k))
		}
	}
	// The next agent ends what this one leaves.
	k := p.submit("setsid", nil)
	comesTrue(t, "it runs", func() bool { return strings.Contains(p.head(k, "stdout"), "ready") })
	r.kill(syscall.SIGKILL)
	r.start(as)
	if v := r.over(p, k); v.claim.Result != "agent_restarted" || len(r.left(k)) > 0 {
		t.Errorf("claim %+v, left %v", v.claim, r.left(k))
	}
}

func copyExecutable(t *testing.T, to string) {
	t.Helper()
	src, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
}
