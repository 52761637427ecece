package masker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// bigSecrets returns secrets of the size in the shapes that make the most patterns.
func bigSecrets(size int) []shape {
	rng := rand.New(rand.NewPCG(1, 1))
	pem := pemText(rng, "PRIVATE KEY", (size-200)/65)
	account, _ := json.Marshal(map[string]string{"private_key": string(pem[:size*9/10]), "type": "service_account"})
	fields := map[string]string{}
	for i := range size / 75 {
		fields[fmt.Sprintf("token%05d", i)] = alnum(rng, 55)
	}
	object, _ := json.Marshal(fields)
	binary := make([]byte, size)
	for i := range binary {
		binary[i] = byte(rng.Uint32())
	}
	lines := bytes.Repeat([]byte("the quick brown fox jumps over 12 lazy dogs\n"), size/44)
	return []shape{
		{name: "PEM", value: pem}, {name: "PEM in JSON", value: account}, {name: "JSON", value: object}, {name: "binary", value: binary},
		{name: "one line", value: []byte(alnum(rng, size))}, {name: "lines", value: lines},
		{name: "kubeconfig", value: fmt.Appendf(nil, "apiVersion: v1\nusers:\n- name: a\n  user:\n    client-key-data: %s\n", base64.StdEncoding.EncodeToString(pem[:size*7/10]))},
		{name: "short lines", value: []byte(strings.Join(strings.Fields(string(between([]byte(alnum(rng, size*15/16)), 15, "\n"))), "\n"))},
	}
}

// The default run takes an eighth of the longest value, make leakhunt all of it.
func TestBigSecretsStayBounded(t *testing.T) {
	size := masker.LongestValue / 8
	if *leakProbes >= 1_000_000 {
		size = masker.LongestValue
	}
	for _, s := range bigSecrets(size) {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		set := masker.New()
		report, err := set.Add(s.name, s.value)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		out := set.Bytes(s.value)
		prints := set.Fingerprints([32]byte{1})
		runtime.GC()
		runtime.ReadMemStats(&after)
		grown, total := int(after.HeapAlloc-before.HeapAlloc), int(after.TotalAlloc-before.TotalAlloc)
		t.Logf("%s: %d patterns, %d prints, %d bytes for each byte of the secret, %d while adding", s.name, report.Patterns, len(prints), grown/size, total/size)
		if grown > 200*size+4<<20 {
			t.Errorf("%s: %d bytes in use", s.name, grown)
		}
		if total > 750*size+8<<20 {
			t.Errorf("%s: %d bytes were allocated", s.name, total)
		}
		if report.Patterns > size/3 {
			t.Errorf("%s: %d patterns", s.name, report.Patterns)
		}
		if len(prints) > masker.MostPrints/4 {
			t.Errorf("%s: %d prints", s.name, len(prints))
		}
		if len(out) > 100 {
			t.Errorf("%s: %.200q came out", s.name, out)
		}
		_ = set.Close()
	}
}

func BenchmarkAddBiggest(b *testing.B) {
	for _, s := range bigSecrets(masker.LongestValue)[:3] {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(s.value)))
			b.ReportAllocs()
			for b.Loop() {
				set := masker.New()
				if _, err := set.Add(s.name, s.value); err != nil {
					b.Fatal(err)
				}
				_ = set.Bytes([]byte("x"))
				_ = set.Close()
			}
		})
	}
}
