package underfire

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// An executor fills the disk that all share. It is ended for it, and says so;
// the other attempt's log waits meanwhile and is whole, and the agent goes on.
// Where no small disk can be mounted there is only the test in package agent,
// with a disk that says that it is full.
func TestFullDiskEndsTheOneThatFilledIt(t *testing.T) {
	dir := openTempDir(t)
	disk := filepath.Join(dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=24m,mode=0755"); err != nil {
		t.Logf("no disk of its own: %v", err)
		return
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	p := newPlane(t)
	r := launch(t, p, func(s *settings) { s.Dir, s.Slots = filepath.Join(disk, "state"), 2 })
	quiet := p.submit("steady", bytesOf(20_000)) // some seconds long
	comesTrue(t, "the quiet one runs", func() bool { return p.bytes(quiet, "stdout") > 0 })
	filler := p.submit("fillDisk", nil)
	if v := r.over(p, filler); v.claim.Result != "storage_unavailable" || !v.facts[0].Confirmed {
		t.Errorf("the one that filled it: %+v, facts %+v", v.claim, v.facts)
	}
	v := r.over(p, quiet)
	if got := p.head(quiet, "stdout"); v.claim.Result != "succeeded" || got != numbered(len(got)) || len(got) < 20_000 {
		t.Errorf("the quiet one: %+v with %d bytes", v.claim, len(got))
	}
	// The same by its log alone, of which the quota would let more pass.
	loud := p.submit("flood", bytesOf(64<<20))
	if v := r.over(p, loud); v.claim.Result != "storage_unavailable" || p.bytes(loud, "stdout") == 0 {
		t.Errorf("the loud one: %+v with %d bytes", v.claim, p.bytes(loud, "stdout"))
	}
	if next := r.over(p, p.submit("ok", nil)); next.claim.Result != "succeeded" {
		t.Errorf("the next job: %+v", next.claim)
	}
	if n, ok := r.metric(`eps_runner_stops_total{proof="reaped",reason="storage"}`); !ok || n != 2 {
		t.Errorf("%v stops for the disk are counted", n)
	}
}
