package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/policy"
)

// packageFolder is a folder that a package can be made of.
func packageFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"package.yaml": "name: web-base\nversion: 1.2.0\ndescription: nginx\nplaybooks: [site.yml]\nroles: [nginx]\n", "site.yml": "- hosts: all\n",
		"roles/nginx/tasks/main.yml": "[]\n", "README.md": "# web\n",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packageService keeps what is pushed and leads to it.
func packageService(t *testing.T) (url string, kept map[string][]byte) {
	t.Helper()
	kept = map[string][]byte{}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/packages/{digest}", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Authorization") != "Bearer ep_x" {
			t.Errorf("a push as %q: %v", r.Header.Get("Authorization"), err)
		}
		status := http.StatusOK
		if kept[r.PathValue("digest")] == nil {
			status = http.StatusCreated
		}
		kept[r.PathValue("digest")] = b
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "web-base", "version": "1.2.0", "sha256": r.PathValue("digest"), "bytes": len(b)})
	})
	mux.HandleFunc("GET /v1/packages/{digest}", func(w http.ResponseWriter, r *http.Request) {
		if kept[r.PathValue("digest")] == nil {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]any{"status": 404, "code": "package_unknown", "detail": "no such package"})
			return
		}
		w.Header().Set("Location", "http://"+r.Host+"/bucket/"+r.PathValue("digest"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("GET /bucket/{digest}", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the token came to the object store")
		}
		_, _ = w.Write(kept[r.PathValue("digest")]) // who left needs no answer
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL, kept
}

// A package is built, pushed, and looked at, here and where it was pushed to; the
// lines that are printed for the policy are such.
func TestPackageVerbs(t *testing.T) {
	dir, file := packageFolder(t), filepath.Join(t.TempDir(), "web.tar.zst")
	code, out, errOut := cliRun(t, "", "package", "build", dir, "-f", file)
	if code != 0 || !strings.Contains(errOut, "! package.yaml does not list README.md") {
		t.Fatalf("exit code %d, %s%s", code, out, errOut)
	}
	_, lines, _ := strings.Cut(out, "policy bundle:\n\n")
	if _, err := policy.Load(fstest.MapFS{"p.yaml": {Data: []byte(lines)}}); err != nil {
		t.Errorf("the lines for the policy: %v\n%s", err, lines)
	}
	code, out, errOut = cliRun(t, "", "package", "build", dir, "-f", file, "-o", "json")
	var built struct{ Reference, SHA256, File, Policy string }
	if err := json.Unmarshal([]byte(out), &built); err != nil || code != 0 || built.Reference != "web-base@sha256:"+built.SHA256 || built.Policy != lines {
		t.Fatalf("exit code %d, %v, %+v, %s", code, err, built, errOut)
	}
	url, kept := packageService(t)
	for _, word := range []string{"pushed", "there already"} {
		code, out, errOut = cliRun(t, "", "package", "push", file, "--url", url, "--token", "ep_x")
		if code != 0 || out != built.Reference+"  "+word+"\n" {
			t.Errorf("exit code %d, %s%s", code, out, errOut)
		}
	}
	if packed, err := os.ReadFile(file); err != nil || !bytes.Equal(kept[built.SHA256], packed) {
		t.Errorf("other bytes were pushed, or %v", err)
	}
	for _, what := range []string{file, built.Reference} {
		code, out, errOut = cliRun(t, "", "package", "inspect", what, "--url", url, "--token", "ep_x")
		if code != 0 || !strings.Contains(out, "site.yml") || !strings.Contains(out, built.Reference) || !strings.Contains(out, "not listed  README.md") {
			t.Errorf("inspect %s: exit code %d, %s%s", what, code, out, errOut)
		}
	}
}

func TestPackageVerbsThatFail(t *testing.T) {
	dir := packageFolder(t)
	file, broken := filepath.Join(t.TempDir(), "web.tar.zst"), filepath.Join(t.TempDir(), "broken")
	if code, _, errOut := cliRun(t, "", "package", "build", dir, "-f", file); code != 0 {
		t.Fatal(errOut)
	}
	if err := os.WriteFile(broken, []byte("\x28\xb5\x2f\xfdno"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.yaml"), []byte("name: web-base\nversion: v1\nplaybook: [site.yml]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, kept := packageService(t)
	digest := strings.Repeat("ab", 32)
	kept[digest] = []byte("not the package")
	for name, tc := range map[string]struct {
		args []string
		code int
		text string
	}{
		"a mistake in package.yaml": {[]string{"build", dir, "-f", file + "2"}, exitUsage, `package.yaml:3: unknown field "playbook"`},
		"no folder":                 {[]string{"build", dir + "/none", "-f", file + "2"}, exitFailed, "no such file"},
		"a broken file":             {[]string{"inspect", broken}, exitUsage, "its archive cannot be read"},
		"no file":                   {[]string{"inspect", broken + "2"}, exitUsage, "no such file"},
		"no reference":              {[]string{"inspect", "web-base@sha256:12"}, exitUsage, "is no SHA-256"},
		"never pushed":              {[]string{"inspect", "web-base@sha256:" + strings.Repeat("cd", 32)}, exitUsage, "no such package"},
		"other bytes":               {[]string{"inspect", "web-base@sha256:" + digest}, exitUsage, "no package"},
		"pushing a broken file":     {[]string{"push", broken}, exitUsage, "its archive cannot be read"},
		"nobody there":              {[]string{"push", file, "--url", "http://127.0.0.1:1"}, exitUnreachable, "could not be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"package"}, tc.args...)
			if !strings.Contains(strings.Join(args, " "), "--url") {
				args = append(args, "--url", url)
			}
			code, out, errOut := cliRun(t, "", args...)
			if code != tc.code || !strings.Contains(errOut, tc.text) || out != "" {
				t.Errorf("exit code %d, out %q, err %q", code, out, errOut)
			}
		})
	}
	if _, err := os.Stat(file + "2"); !os.IsNotExist(err) {
		t.Error("a package was written all the same")
	}
}
