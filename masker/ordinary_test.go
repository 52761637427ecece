package masker_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// realisticSecrets is what an environment of one team holds: keys and files, weak
// passwords, and files whose fields are names, ports and words that logs are full of.
func realisticSecrets(seed uint64) []shape {
	rng := rand.New(rand.NewPCG(seed, 17))
	all := append(shapes(seed), formats(seed)...)
	return append(all,
		shape{name: "weak", value: []byte("password1")}, shape{name: "weak word", value: []byte("changeme")}, shape{name: "name", value: []byte("svc-nightly-sync")},
		shape{name: "words", value: []byte("correct horse battery staple")}, shape{name: "four words", value: []byte("orbit tulip cactus velvet")},
		shape{name: "number", value: []byte(fmt.Sprint(10_000_000 + rng.IntN(80_000_000)))}, shape{name: "date", value: []byte("1987-03-14")},
		shape{name: "hex", value: []byte(hexOf(rng, 32))}, shape{name: "short hex", value: []byte(hexOf(rng, 10))}, shape{name: "uuid", value: []byte(uuidOf(rng))},
		shape{name: "database", value: []byte(`{"host":"db-01.prod.example.com","port":5432,"user":"admin","database":"orders","sslmode":"require","password":"` + alnum(rng, 20) + `"}`)},
		shape{name: "settings", value: []byte("username: deploy\nenvironment: production\nregion: eu-west-1\nport: 8080\nlog_level: info\npassword: " + alnum(rng, 12) + "\n")},
		shape{name: "properties", value: []byte("DB_HOST=10.0.0.12\nDB_PORT=5432\nDB_NAME=frontend\nDB_USER=postgres\nADMIN=admin\nDEBUG=false\nDB_PASSWORD=" + alnum(rng, 16) + "\n")},
	)
}

func setOfShapes(t testing.TB, all []shape) *masker.Set {
	t.Helper()
	set := masker.New()
	for _, s := range all {
		if _, err := set.Add(s.name, s.value); err != nil {
			t.Fatal(s.name, err)
		}
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}

// changedLines returns how many lines of in are not the same in out, and tells some.
func changedLines(t *testing.T, in, out []byte) int {
	t.Helper()
	want, got := bytes.Split(in, []byte("\n")), bytes.Split(out, []byte("\n"))
	changed := 0
	for i := range want {
		if i >= len(got) || !bytes.Equal(want[i], got[i]) {
			if changed++; changed < 5 && i < len(got) {
				t.Logf("line %d: %.300q became %.300q", i+1, want[i], got[i])
			}
		}
	}
	return changed + max(0, len(got)-len(want))
}

// The lines are generated, 100,000 for each of three sets of secrets. One line of
// all may be masked by chance.
func TestOrdinaryOutputStaysAsItIs(t *testing.T) {
	changed := 0
	for seed := uint64(11); seed < 14; seed++ {
		set := setOfShapes(t, realisticSecrets(seed))
		rng := rand.New(rand.NewPCG(seed, 4))
		var in bytes.Buffer
		for range 100_000 {
			in.WriteString(benignLine(rng))
			in.WriteByte('\n')
		}
		out, _ := mask(t, set, in.Bytes())
		changed += changedLines(t, in.Bytes(), out)
	}
	if changed > 1 {
		t.Errorf("%d of 300,000 lines have changed", changed)
	}
}

// The lines were printed by the tools. A diff of them before and after is empty.
func TestCapturedOutputStaysAsItIs(t *testing.T) {
	files, err := filepath.Glob("testdata/ordinary/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d captured files, %v", len(files), err)
	}
	for _, name := range files {
		in, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(3) {
			set := setOfShapes(t, realisticSecrets(seed))
			out, _ := mask(t, set, cut(rand.New(rand.NewPCG(seed, 1)), in, 50)...)
			if n := changedLines(t, in, out); n > 0 {
				t.Errorf("%s: %d lines have changed", name, n)
			}
		}
	}
}

// What is too short is refused, what is weak is masked as a whole only.
func TestWeakValues(t *testing.T) {
	set := masker.New()
	if _, err := set.Add("short", []byte("admin")); !errors.Is(err, masker.ErrTooShort) {
		t.Errorf("admin: %v", err)
	}
	for _, weak := range []string{"password1", "changeme", "1987-03-14", "123456"} {
		report, err := set.Add("weak", []byte(weak))
		if err != nil || report.Weak == "" {
			t.Errorf("%s: %q, %v", weak, report.Weak, err)
		}
		if got := set.String("x " + weak + " y"); strings.Contains(got, weak) {
			t.Errorf("%s is not masked: %q", weak, got)
		}
	}
	const line = "password authentication failed for user admin, please change me, 1987-03-15 12345"
	if got := set.String(line); got != line {
		t.Errorf("got %q", got)
	}
}
