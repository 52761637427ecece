package masker_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// FuzzStream writes any text around a secret at any cut: the output does not
// depend on the cuts, the secret is not in it, and text without one stays.
func FuzzStream(f *testing.F) {
	f.Add("p4p4-p4p4-Xq", "before ", " after", uint64(1))
	f.Add("a'b\"c\\d%2Fe", "\\", "\x1b[0m", uint64(2))
	f.Add("Correct horse 7", "0x", "\r\n=", uint64(3))
	f.Add("\xff\x00\x8a\x41\xfe\x10", "\x00", "\xe2\x80", uint64(4))
	f.Add("Correct horse\n7 staple", "> ", "\n> ", uint64(5))
	f.Add("heron-token-4410", "\" + \"", "00000010: 6865 726f 6e2d 746f 6b65 6e2d 3434 3130  heron-token-4410\n", uint64(6))
	f.Add("the lazy dogs the lazy dogs 12", "the lazy dogs ", "&#x74&#104", uint64(7))
	f.Fuzz(func(t *testing.T, secret, before, after string, seed uint64) {
		if len(before)+len(after)+len(secret) > 2000 {
			return
		}
		set := masker.New()
		defer set.Close()
		if _, err := set.Add("n", []byte(secret)); err != nil {
			return
		}
		text := []byte(before + secret + after)
		whole, _ := mask(t, set, text)
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 4 {
			if got, _ := mask(t, set, cut(rng, text, 2+rng.IntN(12))...); !bytes.Equal(got, whole) {
				t.Fatalf("cut: %q\nwhole: %q", got, whole)
			}
		}
		if bytes.Contains(whole, []byte(strings.TrimSpace(secret))) {
			t.Fatalf("%q is in %q", secret, whole)
		}
		if again := set.Bytes(whole); bytes.Count(again, []byte("masked")) < bytes.Count(whole, []byte("masked")) && !strings.Contains(secret, "mask") {
			t.Fatalf("the marks of %q do not last: %q", whole, again)
		}
	})
}

// FuzzPatterns encodes any secret in every way of the matrix: nothing of it can be
// read in the output.
func FuzzPatterns(f *testing.F) {
	f.Add([]byte("p4p4-p4p4-Xq"), uint8(0))
	f.Add([]byte("a b\tc\nd e f g"), uint8(20))
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07"), uint8(59))
	f.Add([]byte("''\"\"``^^\\\\%%&&=="), uint8(11))
	all := encodings()
	f.Fuzz(func(t *testing.T, secret []byte, which uint8) {
		if len(secret) > 200 {
			return
		}
		set := masker.New()
		defer set.Close()
		report, err := set.Add("n", secret)
		if err != nil {
			return
		}
		if report.Patterns == 0 {
			t.Fatal("an accepted secret has no pattern")
		}
		if len(bytes.Join(bytes.Fields(secret), nil)) < 6 {
			return // hardly more than white space: not found where that is changed, see doc.go
		}
		// Secrets of few different bytes are found in the text around them.
		e := all[int(which)%len(all)]
		text := e.do(secret)
		out, _ := mask(t, set, text)
		if len(text) > 40 && bytes.Equal(out, text) && !e.text {
			t.Fatalf("%q as %s: %q is not masked", secret, e.name, text)
		}
	})
}

// FuzzSplit takes any document apart: it ends, holds no value in its report, and
// what it takes as fields is masked.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`{"a":{"password":"qx7-Tulip-41"},"b":[1,2,"x"]}`))
	f.Add([]byte("A=1\nexport DB_PASSWORD='qx7 Tulip'\n# c\n[s]\n"))
	f.Add([]byte("a:\n- b: |\n    text-1234\n  token: \"x\\ny-9988-zz\"\n"))
	f.Add([]byte("postgres://u:p%40ss-w0rd@h/db?token=abc-123-def"))
	f.Add([]byte("-----BEGIN X-----\nMIIEvQIBADANBgkq\n-----END X-----\n"))
	for _, s := range formats(1) {
		f.Add(s.value)
	}
	f.Add(kubeconfig(rand.New(rand.NewPCG(1, 1))))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if len(doc) > 4000 {
			return
		}
		set := masker.New()
		defer set.Close()
		report, err := set.Add("n", doc)
		if err != nil {
			return
		}
		if len(report.Rejected) > 101 {
			t.Fatalf("%d rejections", len(report.Rejected))
		}
		if out := set.Bytes(doc); bytes.Contains(out, bytes.TrimSpace(doc)) {
			t.Fatalf("the document is not masked: %q", out)
		}
	})
}
