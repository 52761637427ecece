package packages_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/packages"
)

// source makes a folder of files; a text of "-> x" is a link to x.
func source(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "-> ")
		if isLink {
			if err := os.Symlink(target, p); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func web() map[string]string {
	return map[string]string{
		"package.yaml": "name: web-base\nversion: 1.0.0\nplaybooks: [site.yml]\nroles: [nginx]\n", "site.yml": "- hosts: all\n  roles: [nginx]\n",
		"roles/nginx/tasks/main.yml": "- debug: {msg: hello}\n", "roles/nginx/files/run.sh": "#!/bin/sh\n", "play/roles": "-> ../roles",
		".git/config": "[core]\n", "roles/nginx/__pycache__/x.pyc": "\x00", "README.md": "# web\n",
	}
}

// The digest of one small package: who changes it changes the reference of every
// package that anyone builds anew.
const webDigest = "069539e8acd00c6ae415a9913fb2b455af22ecc41ca33f4976c69994ad9ce6f1"

// The same content gives the same bytes, whatever its times, owners and modes are
// and in whatever order the folder was filled.
func TestBuildIsDeterministic(t *testing.T) {
	var first bytes.Buffer
	for i := range 3 {
		dir := source(t, web())
		run := filepath.Join(dir, "roles/nginx/files/run.sh")
		if err := os.Chmod(run, []os.FileMode{0o755, 0o700, 0o711 | os.ModeSetuid}[i]); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "site.yml"), []os.FileMode{0o644, 0o600, 0o666}[i]); err != nil {
			t.Fatal(err)
		}
		when := time.Now().Add(time.Duration(i) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "site.yml"), when, when); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := os.MkdirAll(filepath.Join(dir, "empty/folder"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		b, err := packages.Build(dir, &out, packages.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = out
			if b.SHA256 != webDigest {
				t.Errorf("the digest is %s", b.SHA256)
			}
			if b.Reference.String() != "web-base@sha256:"+b.SHA256 || strings.Join(b.Unlisted, " ") != "README.md play/roles" || strings.Join(b.LeftOut, " ") != ".git roles/nginx/__pycache__" {
				t.Errorf("built %+v", b)
			}
			c, err := packages.Inspect(bytes.NewReader(out.Bytes()), packages.DefaultLimits())
			if err != nil || c.Tree != b.Tree || c.Bytes != b.Bytes {
				t.Errorf("inspected %+v, %v", c, err)
			}
		}
		if !bytes.Equal(out.Bytes(), first.Bytes()) {
			t.Errorf("build %d differs", i)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	with := func(name, text string) map[string]string {
		files := web()
		files[name] = text
		return files
	}
	for name, tc := range map[string]struct {
		files map[string]string
		want  packages.Code
	}{
		"no manifest":       {map[string]string{"site.yml": ""}, packages.NoManifest},
		"a broken manifest": {with("package.yaml", "name: web\nrolls: []\n"), packages.ManifestInvalid},
		"a missing role":    {with("package.yaml", "name: web\nversion: v1\nroles: [apache]\n"), packages.ListedMissing},
		"a link out":        {with("etc", "-> ../../../etc"), packages.LinkOutside},
		"a link to /etc":    {with("etc", "-> /etc"), packages.LinkAbsolute},
		"a link to .git":    {with("git", "-> .git"), packages.LinkBroken},
		"a circle":          {with("roles/again", "-> ../roles"), packages.LinkLoop},
		"case":              {with("SITE.yml", "- hosts: all\n"), packages.CaseCollision},
		"a control":         {with("a\nb", ""), packages.NameControl},
		"a deep file":       {with("1/2/3/4/5/6", ""), packages.TooDeep},
		"a large file":      {with("large", strings.Repeat("x", 32<<20+1)), packages.FileTooLarge},
		"a bomb":            {with("zeros", strings.Repeat("\x00", 20<<20)), packages.RatioTooHigh},
	} {
		t.Run(name, func(t *testing.T) {
			dir, out := source(t, tc.files), t.TempDir()
			_, err := packages.BuildFile(dir, filepath.Join(out, "p.tar.zst"), tight())
			if packages.CodeOf(err) != tc.want {
				t.Errorf("got %v", err)
			}
			if left, err := os.ReadDir(out); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
