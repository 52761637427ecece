package agent

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

// factsOf takes the facts about secrets apart.
func factsOf(j job) (issued []wire.TokenFact, resolved []wire.SecretFact, revoked []string) {
	for _, f := range j.facts {
		switch {
		case f.SecretTokenIssued != nil:
			issued = append(issued, *f.SecretTokenIssued)
		case f.SecretResolved != nil:
			resolved = append(resolved, *f.SecretResolved)
		case f.SecretRevoked != nil:
			revoked = append(revoked, f.SecretRevoked.Accessors...)
		}
	}
	return issued, resolved, revoked
}

// A hostile executor shows its secrets through every sink, in every encoding and
// cut in two, and ends in every way. Nothing of them leaves the agent or lies on its
// disk, and Vault has back what it gave.
func TestNoSinkShowsASecret(t *testing.T) {
	w := newSecretWorld(t)
	values := []string{random(), random(), random()}
	w.vault.Put("kv2", "app", map[string]any{"password": values[0], "token": values[1]})
	w.vault.Write("kv1/app", map[string]any{"password": values[2]})
	w.begin()
	refs := []string{"vault://kv2/app#password", "vault://kv2/app", "vault://kv1/app#password"}
	for _, tc := range []struct{ action, want string }{
		{leakAndExit, "executor_crashed"}, // an outcome is no excuse for a broken message
		{leakAndFail, "task_failed"},
		{leakAndCrash, "executor_crashed"},
		{leakAndHang, domain.ClaimStopped},
	} {
		t.Run(strings.TrimPrefix(tc.action, "verify.x."), func(t *testing.T) {
			w.t = t
			defer func(outer *testing.T) { w.t = outer }(t)
			j := w.job(tc.action, refs...)
			if tc.action == leakAndHang {
				w.prints(j, "ready")
				if files := secretFiles(t, w.shm); len(files) != 3 {
					t.Errorf("while it runs its secrets lie in %v", files)
				}
				if got := w.shown(values...); len(got) > 0 {
					t.Errorf("while it runs they are shown in %v", got)
				}
				w.plane.stopJob(j, domain.StopCancel)
			}
			v := w.finishes(j)
			if tc.action != leakAndExit && v.claim.Result != tc.want {
				t.Errorf("claim %+v", v.claim)
			}
			issued, resolved, revoked := factsOf(v)
			if len(issued) != 1 || issued[0].Purpose != "read" || len(resolved) != 3 || !slices.Equal(revoked, []string{issued[0].Accessor}) {
				t.Errorf("issued %+v, resolved %+v, revoked %v", issued, resolved, revoked)
			}
			if w.vault.TokenAlive(issued[0].Accessor) {
				t.Error("the attempt's token lives on")
			}
			if resolved[0].Engine != "kv2" || resolved[0].Version != 1 || resolved[2].Engine != "kv1" || resolved[1].Mapping != "secret_mappings/kv" {
				t.Errorf("resolved %+v", resolved)
			}
			if len(v.evidence) == 0 || len(v.artifacts) == 0 || !strings.Contains(string(v.logs["stdout"]), "[masked:vault://kv2/app#password]") {
				t.Errorf("the leaker did not come to its sinks: %d pieces of evidence, %d artifacts, stdout %.200q", len(v.evidence), len(v.artifacts), v.logs["stdout"])
			}
			if got := w.shown(values...); len(got) > 0 {
				t.Errorf("they are shown in %v", got)
			}
			if files := secretFiles(t, w.shm); len(files) > 0 {
				t.Errorf("left in memory: %v", files)
			}
			found := fingerprint.NewScanner(w.plane.printKey, v.prints)
			_, _ = found.Write([]byte("a log with " + values[1] + " in it"))
			if found.Hits() == 0 || v.certain < 8 {
				t.Errorf("%d prints do not find a value; certain %d", len(v.prints), v.certain)
			}
		})
	}
	w.t = t
}

// secretFiles are the files below the folder for secrets.
func secretFiles(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	return out
}

// What cannot be had ends the attempt with its own code, before the executor is
// started, and the text says why without the value or a text that is no reference.
func TestSecretsThatCannotBeHad(t *testing.T) {
	w := newSecretWorld(t)
	good := random()
	w.vault.Put("kv2", "app", map[string]any{"password": good})
	w.vault.Put("kv2", "app/short", map[string]any{"v": "ab1!"})
	w.vault.Put("kv2", "app/one", map[string]any{"v": "x"})
	w.vault.Put("kv2", "app/blank", map[string]any{"v": "  \n\t  "})
	w.vault.Put("kv2", "app/gaps", map[string]any{"v": "   ab   "})
	w.vault.Put("kv2", "app/empty", map[string]any{"v": ""})
	w.vault.Put("kv2", "app/null", map[string]any{"v": nil})
	w.vault.Put("kv2", "app/big", map[string]any{"v": strings.Repeat("0123456789abcde\n", 66<<10)[:1<<20-100] + strings.Repeat("z", 200)})
	w.vault.Put("kv2", "app/gone", map[string]any{"v": "was once here"})
	if _, err := w.vault.Root().Logical().Delete("kv2/data/app/gone"); err != nil {
		t.Fatal(err)
	}
	w.vault.Write("kv1/wrong/app", map[string]any{"v": good})
	w.vault.Put("team/kv", "app", map[string]any{"v": good})
	w.begin()
	const denied, unavailable = "secret_denied", "vault_unavailable"
	for ref, want := range map[string]string{
		"vault://kv2/app/short#v": denied, "vault://kv2/app/one#v": denied, "vault://kv2/app/blank#v": denied, "vault://kv2/app/gaps#v": denied,
		"vault://kv2/app/empty#v": denied, "vault://kv2/app/null#v": denied, "vault://kv2/app/gone#v": denied, "vault://kv2/app/none#v": denied,
		"vault://kv2/app#nothing": denied, "vault://kv2/app#password?version=9": denied, "vault://kv2/app/big#v": denied,
		"vault://kv1/wrong/app#v": denied, "vault://team/kv/app#v": denied, "vault://kv2/norole/x": denied, "vault://elsewhere/app": denied,
		"vault://kv2/Pa%24%24w0rd-put-here": denied, "vault://hunter2-the-password": denied, "vault://accounts/creds/none": denied,
	} {
		t.Run(strings.NewReplacer("/", "_", ":", "").Replace(ref), func(t *testing.T) {
			w.t = t
			// One good secret beside it makes no difference.
			v := w.finishes(w.job(leakAndExit, "vault://kv2/app#password", ref))
			if v.claim.Result != want || v.claim.Launched || v.claim.Code != nil {
				t.Errorf("claim %+v; events %s", v.claim, v.logs["events"])
			}
			issued, resolved, revoked := factsOf(v)
			if len(resolved) > 0 || len(issued) != len(revoked) {
				t.Errorf("issued %v, resolved %v, revoked %v", issued, resolved, revoked)
			}
			events := string(v.logs["events"])
			if !strings.Contains(events, "the executor was not started") {
				t.Errorf("nothing says why: %s", events)
			}
			for _, text := range []string{"was once here", "hunter2", "Pa%24", good} {
				if strings.Contains(events, text) || strings.Contains(w.log.String(), text) {
					t.Errorf("the text shows %q: %s", text, events)
				}
			}
		})
	}
	w.t = t
	w.vault.Seal()
	v := w.finishes(w.job(leakAndExit, "vault://kv2/app#password"))
	if v.claim.Result != unavailable || v.claim.Launched {
		t.Errorf("sealed: claim %+v", v.claim)
	}
	w.vault.Unseal()
	if v := w.finishes(w.job(readsNothing, "vault://kv2/app#password")); v.claim.Result != "succeeded" {
		t.Errorf("unsealed again: claim %+v, events %s", v.claim, v.logs["events"])
	}
	if got := w.shown(good); len(got) > 0 {
		t.Errorf("it is shown in %v", got)
	}
}

// A short value passes where its mapping lets it, and the ledger says so. A dynamic
// secret ends with its attempt.
func TestUnmaskedAndDynamicSecrets(t *testing.T) {
	w := newSecretWorld(t)
	w.vault.Put("kv2", "pins/door", map[string]any{"pin": "4711"})
	w.vault.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	w.begin()
	w.vault.Put("kv2", "app", map[string]any{"user": random(), "pass\"word": random(), "port": 544323})
	v := w.finishes(w.job(looksAtItself, "vault://kv2/pins/door#pin", "vault://kv2/app"))
	_, resolved, _ := factsOf(v)
	if v.claim.Result != "succeeded" || len(resolved) != 2 || !resolved[0].Unmasked || len(resolved[0].Weak) == 0 {
		t.Errorf("claim %+v, resolved %+v, events %s", v.claim, resolved, v.logs["events"])
	}
	if got := string(v.logs["stdout"]); !strings.Contains(got, "signal 11, dumped false, files []") || strings.Contains(got, "limit 1844") ||
		!strings.Contains(got, "s0 s0 -r-------- <nil> []") || !strings.Contains(got, `s1 s1 -r-------- <nil> ["pass\"word" "port" "user"]`) {
		t.Errorf("the executor sees %s", got)
	}
	j := w.job(leakAndHang, "vault://accounts/creds/app")
	w.prints(j, "ready")
	if alive := w.vault.Accounts(); len(alive) != 1 {
		t.Errorf("while it runs the accounts are %v", alive)
	}
	w.plane.stopJob(j, domain.StopCancel)
	v = w.finishes(j)
	_, resolved, revoked := factsOf(v)
	if alive := w.vault.Accounts(); len(alive) != 0 || len(revoked) != 1 || resolved[0].LeaseID == "" || resolved[0].Engine != "accounts" {
		t.Errorf("accounts %v, revoked %v, resolved %+v", alive, revoked, resolved)
	}
}

// Without a place in memory a job with secrets is refused, and others go on.
func TestNoPlaceForSecrets(t *testing.T) {
	w := newSecretWorld(t)
	w.vault.Put("kv2", "app", map[string]any{"password": random()})
	w.config.secretBases = []string{"/proc", t.TempDir() + "/none"}
	w.begin()
	v := w.finishes(w.job(leakAndExit, "vault://kv2/app#password"))
	if v.claim.Result != "storage_unavailable" || v.claim.Launched || !strings.Contains(string(v.logs["events"]), "tmpfs") {
		t.Errorf("claim %+v, events %s", v.claim, v.logs["events"])
	}
	if v := w.finishes(w.job(readsNothing)); v.claim.Result != "succeeded" {
		t.Errorf("a job without secrets: %+v", v.claim)
	}
}

// A binary file is not rewritten: what it shows is for the scan to find.
func TestBinaryFilesStayAsTheyAre(t *testing.T) {
	w := newSecretWorld(t)
	value := random()
	w.vault.Put("kv2", "app", map[string]any{"password": value})
	w.begin()
	v := w.finishes(w.job(leakBinary, "vault://kv2/app#password"))
	a := v.artifacts["core"]
	if got := string(v.objects[a.SHA256]); got != "\x7fELF\x00"+value {
		t.Errorf("stored %q", got)
	}
	if events := string(v.logs["events"]); !strings.Contains(events, `"event":"artifact_shows_secret"`) {
		t.Errorf("nothing warns of it: %s", events)
	}
	found := fingerprint.NewScanner(w.plane.printKey, v.prints)
	_, _ = found.Write(v.objects[a.SHA256])
	if found.Hits() == 0 {
		t.Error("the prints do not find it there")
	}
}

// A key file of nearly a MiB is read, masked, printed within the service's limit,
// and delivered whole.
func TestALargeSecret(t *testing.T) {
	w := newSecretWorld(t)
	raw := make([]byte, 700<<10)
	_, _ = rand.Read(raw)
	pem := strings.Builder{}
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 64) {
		pem.Write(append(line, '\n'))
	}
	w.vault.Put("kv2", "key", map[string]any{"pem": pem.String()})
	w.begin()
	v := w.finishes(w.job(looksAtItself, "vault://kv2/key#pem"))
	if v.claim.Result != "succeeded" || len(v.prints) == 0 || len(v.prints) > 1<<19 || v.certain > 1000 {
		t.Errorf("claim %+v, %d prints, certain %d", v.claim, len(v.prints), v.certain)
	}
	if got := string(v.logs["stdout"]); !strings.Contains(got, fmt.Sprintf("s0 s0 -r-------- <nil> [] %d", pem.Len())) {
		t.Errorf("the executor sees %s", got)
	}
}
