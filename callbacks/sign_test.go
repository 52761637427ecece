package callbacks

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func shared(fill string, n int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(fill, n)))
}

func TestSignatureOfTheStandardsOwnExample(t *testing.T) {
	k, err := parseKeys([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 999), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("signature %q, %v; want %q", got, err, want)
	}
}

// TestEveryKeySigns: a receiver that has either secret accepts, and so does one with
// the public key.
func TestEveryKeySigns(t *testing.T) {
	seed := bytes.Repeat([]byte{7}, ed25519.SeedSize)
	private := ed25519.NewKeyFromSeed(seed)
	first, second := shared("a", 24), shared("b", 64)
	k, err := parseKeys([]byte("# the old one goes in March\n" + first + "\r\n\n" + second + "\nwhsk_" + base64.StdEncoding.EncodeToString(private) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	now, body := time.Now(), []byte(`{"attempt_id":"x"}`)
	value, err := k.sign("id", now, body)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	header.Set(webhooks.HeaderWebhookID, "id")
	header.Set(webhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	header.Set(webhooks.HeaderWebhookSignature, value)
	for secret, good := range map[string]bool{first: true, second: true, shared("c", 32): false} {
		hook, err := webhooks.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		if err := hook.Verify(body, header); (err == nil) != good {
			t.Errorf("verify: %v, want good %t", err, good)
		}
	}
	parts := strings.Split(value, " ")
	if len(parts) != 3 {
		t.Fatalf("%d signatures, want 3", len(parts))
	}
	for _, p := range parts {
		if strings.Count(p, ",") != 1 {
			t.Errorf("%q: libraries split each signature at its one comma", p)
		}
	}
	text, ok := strings.CutPrefix(parts[2], "v1a,")
	sig, err := base64.StdEncoding.DecodeString(text)
	signed := []byte("id." + strconv.FormatInt(now.Unix(), 10) + "." + string(body))
	if !ok || err != nil || !ed25519.Verify(private.Public().(ed25519.PublicKey), signed, sig) {
		t.Errorf("the Ed25519 signature %q does not verify", parts[2])
	}
}

func TestSecretFileRefusals(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "only comments": "# nothing\n", "short": shared("a", 23), "long": shared("a", 65), "no prefix": strings.Repeat("a", 44),
		"unpadded": strings.TrimRight(shared("a", 25), "="), "url alphabet": "whsec_" + strings.Repeat("-_", 22), "only ed25519": "whsk_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"ed25519 halves": shared("a", 32) + "\nwhsk_" + base64.StdEncoding.EncodeToString(make([]byte, 64)),
		"nine keys":      strings.Repeat(shared("a", 32)+"\n", 9),
	} {
		if _, err := parseKeys([]byte(content)); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "YWFh") {
			t.Errorf("%s: the error tells the key: %v", name, err)
		}
	}
}

// TestSecretFileIsReadAgain: a good change is used, a broken one is told once and
// leaves the keys as they were, whether its bytes, its absence or its size is wrong.
func TestSecretFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write(shared("a", 32))
		s, err := openSecrets(path)
		if err != nil {
			t.Fatal(err)
		}
		look := func(wantKeys int, wantChanged, wantBroken bool) {
			t.Helper()
			time.Sleep(secretEvery)
			for i := range 2 {
				k, changed, broken := s.current()
				if len(k.shared) != wantKeys || changed != (wantChanged && i == 0) || (broken != nil) != wantBroken {
					t.Errorf("look %d: %d keys, changed %t, broken %v", i, len(k.shared), changed, broken)
				}
				time.Sleep(secretEvery)
			}
		}
		look(1, false, false)
		write(shared("a", 32) + "\n" + shared("b", 32))
		look(2, true, false)
		write("whsec_half")
		look(2, true, true)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		look(2, true, true)
		write(shared("b", 32))
		look(1, true, false)
	})
}
