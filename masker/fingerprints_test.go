package masker_test

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
	"github.com/platform-core/execution-plane-service/masker/fingerprint"
)

var printKey = [32]byte{7, 31: 1}

func scanFor(prints []uint64, text []byte) int64 {
	s := fingerprint.NewScanner(printKey, prints)
	_, _ = s.Write(text)
	return s.Hits()
}

func TestPrintsOfEverySecret(t *testing.T) {
	for _, s := range append(shapes(4), formats(4)...) {
		set := setOfShapes(t, []shape{s})
		prints := set.Fingerprints(printKey)
		hidden := s.hidden
		if len(hidden) == 0 {
			hidden = s.value
		}
		for name, text := range map[string][]byte{"raw": hidden, "base64": b64(hidden), "hex": []byte(hex.EncodeToString(hidden))} {
			if len(hidden) < 12 && name != "raw" {
				continue
			}
			if scanFor(prints, append([]byte("x "), text...)) == 0 {
				t.Errorf("%s, %s: not found", s.name, name)
			}
		}
		if c := set.Coverage(); c.Share != 1 || c.Certain != fingerprint.LongestRun {
			t.Errorf("%s: %+v", s.name, c)
		}
	}
}

func TestPrintsOfOrdinaryTextAreNone(t *testing.T) {
	s := fingerprint.NewScanner(printKey, setOfShapes(t, realisticSecrets(3)).Fingerprints(printKey))
	rng := rand.New(rand.NewPCG(8, 8))
	for range 30_000 {
		line := []byte(benignLine(rng))
		for name, text := range map[string][]byte{"plain": line, "base64": b64(line), "hex": []byte(hex.EncodeToString(line))} {
			s.Next()
			if _, _ = s.Write(text); s.Hits() > 0 {
				t.Fatalf("a hit in %q, %s", line, name)
			}
		}
	}
}

// More secrets add prints and take none away, however many they are.
func TestPrintsOnlyGrowAndStayBounded(t *testing.T) {
	set := masker.New()
	defer set.Close()
	var before []uint64
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 6 {
		value := []byte(alnum(rng, 30))
		if i%2 == 0 {
			value = pemText(rng, "PRIVATE KEY", 300*i+400)
		}
		if _, err := set.Add(fmt.Sprint(i), value); err != nil {
			t.Fatal(err)
		}
		prints := set.Fingerprints(printKey)
		if len(prints) > masker.MostPrints {
			t.Fatalf("%d prints", len(prints))
		}
		if !slices.IsSorted(prints) {
			t.Fatal("prints are not sorted")
		}
		for _, p := range before {
			if _, ok := slices.BinarySearch(prints, p); !ok {
				t.Fatalf("a print is lost with secret %d", i)
			}
		}
		if i%2 == 1 && scanFor(prints, value) == 0 {
			t.Errorf("secret %d is not found", i)
		}
		before = prints
	}
	if c := set.Coverage(); c.Share >= 1 || c.Share <= 0 || c.Certain <= fingerprint.LongestRun {
		t.Errorf("%+v", c)
	}
}

// Of a long secret every leak of the length that Coverage tells is found.
func TestCertainLeakOfALongSecretIsFound(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, value := range [][]byte{pemText(rng, "PRIVATE KEY", 2500), []byte(alnum(rng, 150_000)), bytes.Repeat([]byte("orbit tulip 42 "), 9000)} {
		set := masker.New()
		if _, err := set.Add("n", value); err != nil {
			t.Fatal(err)
		}
		prints, c := set.Fingerprints(printKey), set.Coverage()
		s := fingerprint.NewScanner(printKey, prints)
		body := value[bytes.IndexByte(value, '\n')+1:]
		body = body[:max(bytes.LastIndex(body, []byte("=")), 1)]
		if len(body) == 1 {
			body = value
		}
		// White space is not counted.
		length := c.Certain + c.Certain/60 + 2
		for range 300 {
			at := rng.IntN(len(body) - length)
			leak := body[at : at+length]
			for name, text := range map[string][]byte{
				"raw": leak, "base64": []byte(base64.StdEncoding.EncodeToString(append([]byte("ab")[:rng.IntN(3)], leak...))), "hex": []byte(hex.EncodeToString(leak)),
			} {
				s.Next()
				before := s.Hits()
				if _, _ = s.Write(text); s.Hits() == before {
					t.Errorf("%d bytes at %d in %s are not found, %+v", length, at, name, c)
				}
			}
		}
		t.Logf("%+v with %d prints", c, len(prints))
		_ = set.Close()
	}
}

// Words of a passphrase that stand alone in what a job leaves behind are no hit, in
// no encoding. The passphrase is one in each.
func TestPrintsOfWordsNeedARun(t *testing.T) {
	encoded := map[string]func([]byte) []byte{
		"plain":  func(v []byte) []byte { return v },
		"base64": b64,
		"base32": func(v []byte) []byte { return []byte(base32.StdEncoding.EncodeToString(v)) },
		"hex":    func(v []byte) []byte { return []byte(hex.EncodeToString(v)) },
	}
	words := []string{"phrase", "account", "service", "database", "runner", "verification", "battery", "password", "Winter", "correct", "staple"}
	for _, secret := range []string{"service account of the shop", "my-runner-password-4711", "Winter-database-2026!", "correct horse battery verification staple", "the pass phrase of the database"} {
		set := setOf(t, secret)
		if c := set.Coverage(); c.Certain != fingerprint.LongestRun {
			t.Errorf("%s: %+v", secret, c)
		}
		s := fingerprint.NewScanner(printKey, set.Fingerprints(printKey))
		for name, encode := range encoded {
			for behind := range 5 {
				front := strings.Repeat("x", behind)
				for _, w := range words {
					for _, payload := range []string{w, `{"event":"` + w + `","attempt":4}`, "the " + w + " has ended", "-" + w + "-"} {
						s.Next()
						before := s.Hits()
						if _, _ = s.Write(encode([]byte(front + payload))); s.Hits() != before {
							t.Errorf("%s: %q in %s is a hit", secret, front+payload, name)
						}
					}
				}
				for at := 0; at+fingerprint.LongestRun <= len(secret); at++ {
					s.Next()
					before := s.Hits()
					leak := front + secret[at:at+fingerprint.LongestRun] + "yy"
					if _, _ = s.Write(encode([]byte(leak))); s.Hits() == before {
						t.Errorf("%s: %q in %s is not found", secret, leak, name)
					}
				}
			}
		}
	}
}

// Nor are they when the secret is itself an encoding of the words.
func TestPrintsOfEncodedWordsNeedARun(t *testing.T) {
	const words = "Winter-database-2026!"
	token := "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9." + string(raw64url([]byte(`{"sub":"`+words+`"}`))) + ".c2lnbmF0dXJlLW9mLXRoZS10b2tlbi1LeDc"
	for _, secret := range []string{string(b64([]byte(words))), `{"password":"` + string(b64([]byte(words))) + `"}`, hex.EncodeToString([]byte(words)), token} {
		s := fingerprint.NewScanner(printKey, setOf(t, secret).Fingerprints(printKey))
		for behind := range 3 {
			for _, text := range []string{"database", `{"sub":"Winter"}`, "the database of Winter"} {
				text = "xx"[:behind%3] + text
				s.Next()
				_, _ = s.Write(b64([]byte(text)))
				s.Next()
				if _, _ = s.Write([]byte(hex.EncodeToString([]byte(text)))); s.Hits() != 0 {
					t.Fatalf("%s: %q is a hit", secret, text)
				}
			}
		}
		if _, _ = s.Write([]byte(secret)); s.Hits() == 0 {
			t.Errorf("%s is not found", secret)
		}
	}
}

// A weak value is masked and has no prints, alone and as a field.
func TestWeakValuesHaveNoPrints(t *testing.T) {
	for _, value := range []string{"postgres", "admin1", "Admin2026!", "changeme", "deploy", "123456", "1987-03-14", `{"user":"app","password":"admin1"}`, "cG9zdGdyZXM=", `{"password":"cG9zdGdyZXM="}`} {
		set := masker.New()
		report, err := set.Add("n", []byte(value))
		if err != nil || value[0] != '{' && report.Weak == "" {
			t.Errorf("%s: %+v, %v", value, report, err)
		}
		if n := len(set.Fingerprints(printKey)); n != 0 {
			t.Errorf("%s has %d prints", value, n)
		}
		if c := set.Coverage(); c.Share != 1 || c.Certain != fingerprint.LongestRun {
			t.Errorf("%s: %+v", value, c)
		}
		if got := set.String("x " + value + " y"); strings.Contains(got, value) {
			t.Errorf("%s is not masked", value)
		}
		_ = set.Close()
	}
}
