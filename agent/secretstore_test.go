package agent

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

// stored reads what the agent wrote to Vault, as root.
func (w *secretWorld) stored(reference string) map[string]string {
	w.t.Helper()
	path, version, ok := strings.Cut(strings.TrimPrefix(reference, "vault://kv2/"), "?version=")
	if !ok || version != "1" {
		w.t.Fatalf("the reference %s names no version", reference)
	}
	data, _ := w.vault.Read("kv2/data/" + path).Data["data"].(map[string]any)
	out := map[string]string{}
	for k, v := range data {
		out[k], _ = v.(string)
	}
	return out
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Secret artifacts go to Vault, and a large one encrypted to object storage with its
// key in Vault. From their announcement on their values are masked; the service has
// their references, sizes and keyed digests, and prints that find them.
func TestSecretArtifacts(t *testing.T) {
	w := newSecretWorld(t)
	w.begin()
	values := map[string]string{"Small": random(), "Binary": random(), "Large": random(), "Refused": random()}
	j := w.jobWith(storeSecrets, values)
	w.prints(j, "announced all")
	comesTrue(t, "they are registered", func() bool { return len(w.plane.view(j).artifacts) == 3 })
	work := shim.Layout(attemptDir(w.config.StateDir, j.offer.AttemptID, 1)).Work
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v := w.finishes(j)
	if v.claim.Result != "succeeded" || v.claim.Artifacts != 3 || len(v.artifacts) != 3 {
		t.Errorf("claim %+v, artifacts %v", v.claim, v.artifacts)
	}
	large := values["Large"] + "\n" + strings.Repeat("0123456789 filler of a large file\n", 40<<10)
	for name, want := range map[string]string{"small": values["Small"], "binary": "\x00\xff" + values["Binary"], "large": large} {
		a := v.artifacts[name]
		if a.Vault == nil || a.Sensitivity != "secret" || a.SHA256 != "" || a.Bytes != int64(len(want)) {
			t.Fatalf("%s is announced as %+v", name, a)
		}
		got := w.stored(a.Vault.Reference)
		content := []byte(got["value"])
		switch name {
		case "binary":
			content = decoded(t, got["value_base64"])
		case "large":
			content = opened(t, v.objects[a.Vault.ObjectSHA256], decoded(t, got["key"]))
			if got["object_sha256"] != a.Vault.ObjectSHA256 || a.Vault.ObjectBytes != int64(len(want)+domain.SealedOverhead) {
				t.Errorf("the object of %s is %+v", name, a.Vault)
			}
		}
		mac := hmac.New(sha256.New, decoded(t, got["hmac_key"]))
		mac.Write([]byte(want))
		if !bytes.Equal(content, []byte(want)) || hex.EncodeToString(mac.Sum(nil)) != a.Vault.HMACSHA256 || got["name"] != name || got["media_type"] != "text/x-"+name {
			t.Errorf("%s: Vault holds %d bytes, fields %v", name, len(content), len(got))
		}
	}
	events := string(v.logs["events"])
	if !strings.Contains(events, `"code":"secret_store_not_allowed"`) || strings.Count(events, "artifact_refused") != 2 {
		t.Errorf("events %s", clip(events, 3000))
	}
	if got := w.shown(values["Small"], values["Binary"], values["Large"], values["Refused"]); len(got) > 0 {
		t.Errorf("they are shown in %v", got)
	}
	if !strings.Contains(string(v.logs["stdout"]), "[masked:artifact/small]") {
		t.Errorf("stdout %.500q", v.logs["stdout"])
	}
	issued, _, revoked := factsOf(v)
	if len(issued) != 1 || issued[0].Purpose != "store" || issued[0].Role != "stores" || len(revoked) != 1 || w.vault.TokenAlive(revoked[0]) {
		t.Errorf("issued %+v, revoked %v", issued, revoked)
	}
	found := fingerprint.NewScanner(w.plane.printKey, v.prints)
	_, _ = found.Write([]byte("a line with " + values["Binary"]))
	if found.Hits() == 0 {
		t.Error("the prints do not find a stored value")
	}
}

// opened decrypts what was uploaded.
func opened(t *testing.T, sealed, key []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) < gcm.NonceSize() {
		t.Fatalf("%d bytes were uploaded", len(sealed))
	}
	clear, err := gcm.Open(nil, sealed[:gcm.NonceSize()], sealed[gcm.NonceSize():], nil)
	if err != nil {
		t.Fatal(err)
	}
	return clear
}

// Vault is away when a secret artifact is announced: it is missing, and no copy of
// it is anywhere.
func TestSecretArtifactWhileVaultIsAway(t *testing.T) {
	w := newSecretWorld(t)
	w.begin()
	if err := w.agent.vault.Login(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.vault.Stop()
	values := map[string]string{"Small": random(), "Binary": random(), "Large": random(), "Refused": random()}
	j := w.jobWith(storeSecrets, values)
	w.prints(j, "announced all")
	comesTrue(t, "they are refused", func() bool {
		return strings.Count(string(w.plane.view(j).logs["events"]), "artifact_refused") == 5
	})
	work := shim.Layout(attemptDir(w.config.StateDir, j.offer.AttemptID, 1)).Work
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	v := w.finishes(j)
	if len(v.artifacts) != 0 || v.claim.Artifacts != 0 || strings.Count(string(v.logs["events"]), `"code":"vault_unavailable"`) != 3 {
		t.Errorf("artifacts %v, events %s", v.artifacts, clip(string(v.logs["events"]), 3000))
	}
	if got := w.shown(values["Small"], values["Binary"], values["Large"], values["Refused"]); len(got) > 0 {
		t.Errorf("they are shown in %v", got)
	}
}

// The verdict on a secret artifact cannot be recorded: it is not stored, and masked
// all the same.
func TestSecretArtifactWithoutAVerdictIsMasked(t *testing.T) {
	w := newSecretWorld(t)
	w.begin()
	w.plane.breakBy(func(op string, _ int) (error, error) {
		if op == "fact" {
			return refusal(domain.KindInvalid, "refused"), nil
		}
		return nil, nil
	})
	values := map[string]string{"Small": random(), "Binary": random(), "Large": random(), "Refused": random()}
	j := w.jobWith(storeSecrets, values)
	w.prints(j, "announced all")
	comesTrue(t, "they are refused", func() bool {
		return strings.Count(string(w.plane.view(j).logs["events"]), "artifact_refused") == 5
	})
	work := shim.Layout(attemptDir(w.config.StateDir, j.offer.AttemptID, 1)).Work
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if v := w.finishes(j); len(v.artifacts) != 0 {
		t.Errorf("artifacts %v", v.artifacts)
	}
	if got := w.shown(values["Small"], values["Binary"], values["Large"], values["Refused"]); len(got) > 0 {
		t.Errorf("they are shown in %v", got)
	}
}
