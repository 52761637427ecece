package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/vault"
)

// secretAgent is an agent with Vault in a process of its own: its arguments are the
// service's address, the state folder, a config of AppRole as JSON, and the
// executor's command.
func secretAgent(args []string) int {
	c, err := realConfig(args[0], args[1], args[3:])
	var access struct{ Address, RoleID, SecretIDFile string }
	if err == nil {
		err = json.Unmarshal([]byte(args[2]), &access)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	c.Vault = &vault.Config{Address: access.Address, Login: vault.AppRole{RoleID: access.RoleID, SecretIDFile: access.SecretIDFile}, Patience: time.Second}
	a, err := New(c)
	if err == nil {
		err = a.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startAgent starts one as a process.
func (w *secretWorld) startAgent(url string) *exec.Cmd {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	login, _ := w.access.Login.(vault.AppRole)
	access, err := json.Marshal(map[string]string{"Address": w.access.Address, "RoleID": login.RoleID, "SecretIDFile": login.SecretIDFile})
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(exe, append([]string{"secretagent", url, w.config.StateDir, string(access)}, w.config.Executors["verification"].Argv...)...)
	cmd.Stderr = w.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// The agent is killed while its executor holds secrets. The next one removes them
// from memory, revokes the tokens by the accessors in its journal, and reports.
func TestKilledAgentLeavesNoSecret(t *testing.T) {
	w := newSecretWorld(t)
	values := []string{random(), random()}
	w.vault.Put("kv2", "app", map[string]any{"password": values[0]})
	w.vault.Write("accounts/roles/app", map[string]any{"ttl": "1h"})
	url := w.plane.serve(t).URL
	first := w.startAgent(url)
	j := w.job(leakAndHang, "vault://kv2/app#password", "vault://accounts/creds/app")
	w.prints(j, "ready")
	root := secretRoots(t, w)
	if len(root) != 1 || len(secretFiles(t, root[0])) != 2 || len(w.vault.Accounts()) != 1 {
		t.Fatalf("while it runs: folders %v, accounts %v", root, w.vault.Accounts())
	}
	if got := w.shown(values[0]); len(got) > 0 {
		t.Errorf("it is shown in %v", got)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	comesTrue(t, "its shim removes the files, with no agent there", func() bool { return len(secretFiles(t, root[0])) == 0 })
	if got := w.shown(values[0]); len(got) > 0 {
		t.Errorf("after the crash it is shown in %v", got)
	}
	w.startAgent(url)
	v := w.finishes(j)
	issued, _, revoked := factsOf(v)
	if v.claim.Result != "agent_restarted" || !v.claim.Launched || len(issued) != 1 || !slices.Equal(revoked, []string{issued[0].Accessor}) {
		t.Errorf("claim %+v, issued %+v, revoked %v", v.claim, issued, revoked)
	}
	if w.vault.TokenAlive(issued[0].Accessor) || len(secretFiles(t, root[0])) > 0 {
		t.Errorf("the token lives on, or files are left: %v", secretFiles(t, root[0]))
	}
	comesTrue(t, "the account ends with its token", func() bool { return len(w.vault.Accounts()) == 0 })
	if err := os.RemoveAll(root[0]); err != nil {
		t.Fatal(err)
	}
}

// secretRoots are the folders for secrets of this world's agent.
func secretRoots(t *testing.T, w *secretWorld) []string {
	t.Helper()
	c, err := loadCredential(w.config.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, base := range []string{"/dev/shm", os.Getenv("XDG_RUNTIME_DIR")} {
		if dir := filepath.Join(base, "execution-plane-"+c.RunnerID.String()); exists(dir) {
			out = append(out, dir)
		}
	}
	return out
}

// What another runner of the pool left is revoked when the service says so, and
// told once.
func TestRevokesWhatOthersLeft(t *testing.T) {
	w := newSecretWorld(t)
	c, err := vault.New(*w.access)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.OpenSession(t.Context(), vault.SessionConfig{Attempt: "another", TokenRole: "attempts", Policies: []string{"read-kv2"}, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	left := s.Accessors()
	id := domain.NewID[domain.AttemptID](uuid.New())
	w.plane.with(func() { w.plane.revoke = []wire.Revoke{{AttemptID: id, Accessors: append(left, "never-was")}} })
	w.begin()
	comesTrue(t, "it says that they are revoked", func() bool {
		w.plane.mu.Lock()
		defer w.plane.mu.Unlock()
		return len(w.plane.revoked) == 1
	})
	if got := w.plane.revoked[0]; got.AttemptID != id || len(got.Accessors) != 2 || w.vault.TokenAlive(left[0]) {
		t.Errorf("revoked %+v", got)
	}
	if v := w.finishes(w.job(readsNothing)); v.claim.Result != "succeeded" {
		t.Errorf("a job meanwhile: %+v", v.claim)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Error(err)
	}
}

// A stop that comes while Vault does not answer ends the attempt promptly, and the
// executor is not started.
func TestStopWhileSecretsAreRead(t *testing.T) {
	w := newSecretWorld(t)
	w.access.Patience = time.Minute
	w.vault.Put("kv2", "app", map[string]any{"password": random()})
	w.begin()
	if err := w.agent.vault.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.vault.Pause()
	defer w.vault.Resume()
	j := w.job(leakAndExit, "vault://kv2/app#password")
	comesTrue(t, "it is started", func() bool {
		return slices.ContainsFunc(w.plane.view(j).facts, func(f wire.FactRequest) bool { return f.PolicyDecided != nil })
	})
	w.plane.stopJob(j, domain.StopCancel)
	began := time.Now()
	v := w.finishes(j)
	if v.claim.Result != domain.ClaimStopped || v.claim.Launched || time.Since(began) > 10*time.Second {
		t.Errorf("claim %+v after %v", v.claim, time.Since(began))
	}
}

// Vault is away when the job has ended: the attempt is completed all the same, and
// its runner tells of the revocation when it comes about.
func TestVaultIsAwayAtTheEnd(t *testing.T) {
	w := newSecretWorld(t)
	w.vault.Put("kv2", "app", map[string]any{"password": random()})
	w.begin()
	j := w.job(leakAndHang, "vault://kv2/app#password")
	w.prints(j, "ready")
	w.vault.Stop()
	w.plane.stopJob(j, domain.StopCancel)
	began := time.Now()
	v := w.finishes(j)
	issued, _, revoked := factsOf(v)
	if v.claim.Result != domain.ClaimStopped || len(issued) != 1 || len(revoked) != 0 || time.Since(began) > revokePatience+10*time.Second {
		t.Errorf("claim %+v after %v; issued %+v, revoked %v", v.claim, time.Since(began), issued, revoked)
	}
}

// While Vault does not answer and the end of a job waits for it, the lease is
// reported: without that its outcome would come too late.
func TestReportsGoOnWhileTokensAreRevoked(t *testing.T) {
	w := newSecretWorld(t)
	w.access.RequestTimeout = 5 * time.Second
	w.vault.Put("kv2", "app", map[string]any{"password": random()})
	w.begin()
	j := w.job(leakAndHang, "vault://kv2/app#password")
	w.prints(j, "ready")
	w.vault.Pause()
	defer w.vault.Resume()
	w.plane.stopJob(j, domain.StopCancel)
	comesTrue(t, "nothing of it runs", func() bool {
		return slices.ContainsFunc(w.plane.view(j).facts, func(f wire.FactRequest) bool { return f.ProcessTreeReaped != nil })
	})
	before := w.plane.view(j).reports
	comesTrue(t, "it is reported", func() bool { return w.plane.view(j).reports > before })
	if v := w.plane.view(j); v.claim != nil {
		t.Errorf("it was completed before: %+v", v.claim)
	}
	w.vault.Resume()
	if v := w.finishes(j); v.claim.Result != domain.ClaimStopped {
		t.Errorf("claim %+v", v.claim)
	}
}

// A service that does not take a token's accessor prevents its use.
func TestNothingIsReadWithoutRecord(t *testing.T) {
	w := newSecretWorld(t)
	w.vault.Put("kv2", "app", map[string]any{"password": random()})
	w.begin()
	for op, want := range map[string]string{"fact": "start_abandoned", "fingerprints": "start_abandoned", "fingerprint_key": "start_abandoned"} {
		w.plane.breakBy(func(got string, n int) (error, error) {
			if got == op && (op != "fact" || n > 0) {
				return refusal(domain.KindInvalid, "refused"), nil
			}
			return nil, nil
		})
		before := len(w.vault.Answered("kv2/data/app"))
		v := w.finishes(w.job(leakAndExit, "vault://kv2/app#password"))
		if v.claim.Result != want || v.claim.Launched {
			t.Errorf("%s: claim %+v", op, v.claim)
		}
		if read := len(w.vault.Answered("kv2/data/app")) > before; read != strings.HasPrefix(op, "fingerprint") {
			t.Errorf("%s: the secret was read: %v", op, read)
		}
	}
}
