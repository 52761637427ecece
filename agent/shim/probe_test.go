package shim_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/isolation"
	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/internal/isolationtest"
)

// What works is found by trying it, and what does not is named with the reason; a
// trial leaves nothing.
func TestFindTriesEachEngine(t *testing.T) {
	isolationtest.Engine(t, isolation.Bubblewrap)
	isolationtest.Engine(t, isolation.Runc)
	dir := filepath.Dir(attemptDir(t))
	fake := filepath.Join(t.TempDir(), "podman")
	if err := os.WriteFile(fake, []byte("#!/bin/sh\n[ $1 = --version ] && echo fake 1 || { echo no luck >&2; exit 1; }\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	p := shim.Probe{
		Shim: []string{self(t)[0], "shim"}, Dir: dir, RootFS: map[string]string{"r": isolationtest.RootFS(t, self(t)[0])},
		Engines: []string{isolation.Runc, "podman=" + fake, "crun=/nowhere/crun", isolation.Bubblewrap, "chroot"},
	}
	f := shim.Find(t.Context(), p)
	var works []string
	for _, i := range f.Works {
		works = append(works, i.Engine.Name)
	}
	if diff := cmp.Diff([]string{isolation.Runc, isolation.Bubblewrap}, works); diff != "" {
		t.Errorf("%s; %v", diff, f.Notes)
	}
	notes := strings.Join(f.Notes, "\n")
	for _, want := range []string{"podman: ", "no luck", "crun: ", "no such file", "no isolation engine is called"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q does not say %q", notes, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	// Without anything to make a container of there is none.
	p.RootFS, p.Engines = nil, []string{isolation.Runc}
	if f := shim.Find(t.Context(), p); len(f.Works) > 0 || !strings.Contains(strings.Join(f.Notes, ""), "nothing to make a container of") {
		t.Errorf("%+v", f)
	}
}

// A root file system is shared by all containers: not even a folder to mount on is made
// in it.
func TestRootFSIsNeverWritten(t *testing.T) {
	inEach(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in(sh(`(echo x > /usr/bin/new); (echo x >> /etc/os-release); echo done`)...)
		if c.Isolation.Image.RootFS == "" {
			return
		}
		list := func() (out []string) {
			_ = filepath.WalkDir(c.Isolation.Image.RootFS, func(path string, d fs.DirEntry, err error) error {
				info, ierr := d.Info()
				if err == nil && ierr == nil {
					out = append(out, path+" "+info.ModTime().String())
				}
				return nil
			})
			return out
		}
		before := list()
		w := start(t, c)
		if r := w.end(); !strings.Contains(w.stdout.String(), "done") {
			t.Errorf("%+v %s", r, w.stderr.String())
		}
		if diff := cmp.Diff(before, list()); diff != "" {
			t.Error(diff)
		}
	})
}

// What a cgroup bounds is bound where one can be had, and else it is said that it is
// not.
func TestMemoryIsBoundedInBoxesOrItIsSaid(t *testing.T) {
	inMost(t, func(t *testing.T, in func(...string) shim.Config) {
		c := in(self(t, "act", "hoard")...)
		c.Limits.Memory = 96 << 20
		w := start(t, c)
		r := w.end()
		_, bounded := r.Applied.Limits["memory.max"]
		if survived := strings.Contains(w.stdout.String(), "survived"); survived == bounded || bounded == (len(r.Applied.NotApplied) > 0) {
			t.Errorf("survived: %v, applied %+v; %s", survived, r.Applied, w.stderr.String())
		}
	})
}
