package masker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

func setOf(t testing.TB, values ...string) *masker.Set {
	t.Helper()
	set := masker.New()
	for i, v := range values {
		if _, err := set.Add(fmt.Sprintf("s%d", i), []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = set.Close() })
	return set
}

func TestRefusedValues(t *testing.T) {
	set := masker.New()
	for _, tt := range []struct {
		value string
		want  error
	}{
		{"", masker.ErrEmpty}, {"  ", masker.ErrBlank}, {"\n\n", masker.ErrBlank}, {strings.Repeat(" \t", 40), masker.ErrBlank},
		{"x", masker.ErrTooShort}, {"1234", masker.ErrTooShort}, {"abcde", masker.ErrTooShort}, {" abcde \n", masker.ErrTooShort},
		{strings.Repeat("x", masker.LongestValue+1), masker.ErrTooLong},
	} {
		report, err := set.Add("job-name", []byte(tt.value))
		if !errors.Is(err, tt.want) || report.Patterns != 0 {
			t.Errorf("%.20q: %v with %d patterns, want %v", tt.value, err, report.Patterns, tt.want)
		}
	}
	if got := set.String("waiting for db  \n\n1234"); got != "waiting for db  \n\n1234" {
		t.Errorf("refused values mask: %q", got)
	}
	if _, err := masker.Empty().Add("x", []byte("long enough")); !errors.Is(err, masker.ErrFixed) {
		t.Errorf("Add to the empty set: %v", err)
	}
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := set.Add("x", []byte("long enough")); !errors.Is(err, masker.ErrSetClosed) {
		t.Errorf("Add to a closed set: %v", err)
	}
}

// The cases come from public failure reports.
func TestReportedCases(t *testing.T) {
	zone := "{\n  \"zone\": [\n    \"n1-rotating-4471\"\n  ]\n}"
	for _, tt := range []struct{ name, secret, in, want string }{
		{"fragments stay", zone, `cfg[{host,"n2"},{tags,[]}]`, `cfg[{host,"n2"},{tags,[]}]`},
		{"a field is masked", zone, "use n1-rotating-4471 now", "use [masked:s0] now"},
		{"compacted", zone, `got {"zone":["n1-rotating-4471"]}!`, `got [masked:s0]!`},
		{"indented anew", zone, "got {\n\t\"zone\": [ \"n1-rotating-4471\" ]\n}!", "got [masked:s0]!"},
		{"empty line", "lime-9931-orchard\n", "waiting for db\nlime-9931-orchard\nnext", "waiting for db\n[masked:s0]\nnext"},
		{"without the line end", "lime-9931-orchard\n", "lime-9931-orchard, next", "[masked:s0], next"},
		{"percent signs as they are", "a%2Fb%25-torch", "x a%2Fb%25-torch y", "x [masked:s0] y"},
		{"percent signs decoded", "a%2Fb%25-torch", "x a/b%-torch y", "x [masked:s0] y"},
		{"percent signs encoded again", "a%2Fb%25-torch", "x a%252Fb%2525-torch y", "x [masked:s0] y"},
		{"percent signs in lower case", "a%2Fb%25-torch", "x a%2fb%25-torch y", "x [masked:s0] y"},
		{"last characters", "zeta-4471-q", "status: ok z", "status: ok z"},
		{"short prefix at the end", "zeta-4471-q", "status: zeta-", "status: zeta-"},
		{"long prefix at the end", "zeta-4471-q", "status: zeta-4", "status: [masked:s0]"},
		{"long prefix before a line end", "zeta-4471-q", "status: zeta-4\n", "status: [masked:s0]\n"},
		{"adjacent", "zeta-4471-q", "zeta-4471-qzeta-4471-q", "[masked:s0]"},
		{"mask is the secret", "[masked:s0]", "a [masked:s0] b", "a [masked] b"},
		{"mask within the secret", "ab[masked]cd", "a ab[masked]cd b", "a [masked:s0] b"},
		{"mask would be completed", "]xyz-1234", "]xyz-1234xyz-1234", "(masked)xyz-1234"},
		{"name is the secret", "s0-s0-s0", "s0-s0-s0", "[masked:s0]"},
		{"in a JSON line", `p"w\x-77aa`, `{"a":"p\"w\\x-77aa","b":1}`, `{"a":"[masked:s0]","b":1}`},
		{"cut before the end of an entity", "jv#QIC", "v: &#x6A;&#x76;&#x23;&#x51;&#x49;&#x43", "v: [masked:s0]&#x43"},
		{"entities without their end", "77-67635", "v: &#x37&#x37&#x2D&#x36&#x37&#x36&#x33&#x35 end", "v: [masked:s0] end"},
		{"quoted mail", "Correct horse\n7 staple", "> Correct horse\n> 7 staple\n", "> [masked:s0]\n"},
		{"comment", "Correct horse\n7 staple", "// Correct horse\n// 7 staple\n", "// [masked:s0]\n"},
		{"joined strings", "heron-token-4410", `x = "heron-to" + "ken-4410"`, `x = "[masked:s0]"`},
		{"caret at the line end", "heron-token-4410", "heron-^\r\n  token-4410 x", "[masked:s0] x"},
		{"signed bytes", "p\xe4\xdf-\xfc\xf6x", "[112, -28, -33, 45, -4, -10, 120]", "[[masked:s0]]"},
		{"JSON in base64", "a\"b\nc\"d\ne-7", "x ImFcImJcbmNcImRcbmUtNyI= y", "x Im[masked:s0]yI= y"},
		{"repeated words", strings.Repeat("12 lazy dogs ", 40), strings.Repeat("12 lazy dogs ", 42), "[masked:s0] "},
		{"common word as a whole", "default", "use default here", "use [masked:s0] here"},
	} {
		set := setOf(t, tt.secret)
		out, _ := mask(t, set, []byte(tt.in))
		if string(out) != tt.want || set.String(tt.in) != tt.want {
			t.Errorf("%s: got %q and %q, want %q", tt.name, out, set.String(tt.in), tt.want)
		}
	}
}

func TestJobsOwnNameIsNotInTheMark(t *testing.T) {
	set := masker.New()
	if _, err := set.Add("vault://kv/nightly-backup#pw", []byte("nightly-backup")); err != nil {
		t.Fatal(err)
	}
	if got := set.String("job nightly-backup runs"); got != "job [masked] runs" {
		t.Errorf("got %q", got)
	}
}

func TestSplitsAndTheOtherStream(t *testing.T) {
	set := setOf(t, "copper-otter-58213")
	in := []byte("copper-otter-58213 done")
	for at := 1; at < 18; at++ {
		var out, other bytes.Buffer
		w, o := masker.NewWriter(&out, set), masker.NewWriter(&other, set)
		_, _ = w.Write(in[:at])
		if out.Len() > 0 {
			t.Errorf("%q came out after %d bytes", out.String(), at)
		}
		_, _ = o.Write([]byte("other text"))
		_, _ = w.Write(in[at:])
		_ = w.Close()
		_ = o.Close()
		if out.String() != "[masked:s0] done" || other.String() != "other text" {
			t.Errorf("cut at %d: %q, %q", at, out.String(), other.String())
		}
		if got := w.Counts()["s0"]; got != 1 {
			t.Errorf("counted %d", got)
		}
	}
}

// What comes out after each byte is everything but the longest suffix that begins
// a pattern.
func TestHoldsBackTheLivePrefixOnly(t *testing.T) {
	set := setOf(t, "QxZ-QxQxZ-7")
	in := "a QxZ-QxZ-Qx-QxZ-QxQxZ-7 QxQ."
	held := map[int]bool{}
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	for i := range len(in) {
		_, _ = w.Write([]byte{in[i]})
		longest := 0
		for n := 1; n < len("QxZ-QxQxZ-7") && n <= i+1; n++ {
			if strings.HasSuffix(in[:i+1], "QxZ-QxQxZ-7"[:n]) {
				longest = n
			}
		}
		done := i + 1 - longest
		want := in[:done]
		if at := strings.Index(in, "QxZ-QxQxZ-7"); done > at {
			want = in[:at] + "[masked:s0]" + in[min(done, len(in)):][:0] + in[at+len("QxZ-QxQxZ-7"):max(done, at+len("QxZ-QxQxZ-7"))]
		}
		if out.String() != want {
			t.Errorf("after %q: %q is out, want %q", in[:i+1], out.String(), want)
		}
		held[longest] = true
	}
	if len(held) < 6 {
		t.Errorf("the text has prefixes of %d lengths only", len(held))
	}
}

func TestChainOfMatchesDoesNotGrow(t *testing.T) {
	set := setOf(t, "aaaaaaaa", "abababab")
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	block := bytes.Repeat([]byte("a"), 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 16 {
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	_ = w.Close()
	if out.String() != "[masked:s0]" {
		t.Errorf("%d bytes came out", out.Len())
	}
}

func TestAddWhileStreamsRun(t *testing.T) {
	set := setOf(t, "first-value-1")
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	_, _ = w.Write([]byte("a second-value-2 b first-val"))
	if _, err := set.Add("late", []byte("second-value-2")); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("ue-1 c second-val"))
	if _, err := set.Add("later", []byte("third-value-3")); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte("ue-2 d third-value-3"))
	_ = w.Close()
	if got, want := out.String(), "a second-value-2 b [masked:s0] c [masked:late] d [masked:later]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAddToASetThatWasEmpty(t *testing.T) {
	set := masker.New()
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	_, _ = w.Write([]byte("plain "))
	if out.String() != "plain " {
		t.Errorf("an empty set holds back: %q", out.String())
	}
	_, _ = set.Add("n", []byte("value-77-x"))
	_, _ = w.Write([]byte("value-77-x!"))
	_ = w.Close()
	if out.String() != "plain [masked:n]!" {
		t.Errorf("got %q", out.String())
	}
}

func TestSetIsSafeForConcurrentUse(t *testing.T) {
	set := masker.New()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var out bytes.Buffer
			w := masker.NewWriter(&out, set)
			for i := range 20 {
				value := fmt.Sprintf("value-%d-%d-xyz", g, i)
				if _, err := set.Add("n", []byte(value)); err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, value+"\n")
				if got := set.String(value); got != "[masked:n]" {
					t.Errorf("got %q", got)
				}
			}
			_ = w.Close()
			if strings.Contains(out.String(), "value-") {
				t.Errorf("got %q", out.String())
			}
		}()
	}
	wg.Wait()
}

func TestClosedSetPassesNothing(t *testing.T) {
	set := masker.New()
	_, _ = set.Add("n", []byte("value-77-x"))
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	_, _ = w.Write([]byte("a value"))
	_ = set.Close()
	if _, err := w.Write([]byte("-77-x")); !errors.Is(err, masker.ErrSetClosed) {
		t.Errorf("write: %v", err)
	}
	if err := w.Close(); !errors.Is(err, masker.ErrSetClosed) || out.String() != "a " {
		t.Errorf("close: %v, %q is out", err, out.String())
	}
	if got := set.String("value-77-x"); got != "[masked]" {
		t.Errorf("got %q", got)
	}
}

func TestNoPrintShowsAValue(t *testing.T) {
	const value = "heron-token-4410"
	set := setOf(t, value)
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	_, _ = io.WriteString(w, "heron-tok")
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	logger.Info("x", "set", set, "writer", w)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "set", set)
	shown := log.String() + fmt.Sprintln(set, w)
	held := struct {
		Set *masker.Set
		W   *masker.Writer
		v   any
	}{set, w, set}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		shown += fmt.Sprintf(format, set) + fmt.Sprintf(format, *set) + fmt.Sprintf(format, w) + fmt.Sprintf(format, held)
	}
	text, err := json.Marshal(map[string]any{"a": set, "b": held})
	if err != nil {
		t.Fatal(err)
	}
	shown += string(text)
	for _, form := range []string{value, "heron-tok", fmt.Sprintf("%x", "heron"), fmt.Sprint([]byte("heron"))} {
		if strings.Contains(shown, strings.Trim(form, "[]")) {
			t.Errorf("%q is in %s", form, shown)
		}
	}
}

func TestReportNamesWhatIsNotMasked(t *testing.T) {
	set := masker.New()
	report, err := set.Add("vault://kv/app", []byte(`{"user":"app","debug":"true","note":"default","pin":"1234","password":"qx7-Tulip-41","when":"2026-11-29","on":true}`))
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, r := range report.Rejected {
		what = append(what, r.What)
		if strings.Contains(r.Reason+r.What, "1234") {
			t.Errorf("a value is in the report: %v", r)
		}
	}
	slices.Sort(what)
	if want := []string{"debug", "note", "on", "pin", "user", "when"}; !slices.Equal(what, want) {
		t.Errorf("rejected %v, want %v", what, want)
	}
	if got := set.String("debug true default 1234 2026-11-29 app qx7-Tulip-41"); got != "debug true default 1234 2026-11-29 app [masked:vault://kv/app]" {
		t.Errorf("got %q", got)
	}
	if weak, _ := set.Add("w", []byte("changeme")); weak.Weak == "" {
		t.Error("a common value is not reported as weak")
	}
}

// naive masks a whole buffer by looking for every value at every place.
func naive(text string, values []string) string {
	hidden := make([]bool, len(text))
	for _, v := range values {
		for i := range text {
			if strings.HasPrefix(text[i:], v) {
				for k := range v {
					hidden[i+k] = true
				}
			}
		}
		for n := len(v) - 1; n >= 6; n-- {
			if strings.HasSuffix(text, v[:n]) {
				for k := len(text) - n; k < len(text); k++ {
					hidden[k] = true
				}
				break
			}
		}
	}
	var out strings.Builder
	for i := range text {
		if !hidden[i] {
			out.WriteByte(text[i])
		} else if i == 0 || !hidden[i-1] {
			out.WriteString("***")
		}
	}
	return out.String()
}

func TestSameAsNaive(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "~!"[rng.IntN(2)]
		}
		return string(b)
	}
	for range 300 {
		var values []string
		for range 1 + rng.IntN(4) {
			values = append(values, letters(6+rng.IntN(8)))
		}
		set := setOf(t, values...)
		for range 20 {
			text := letters(rng.IntN(120))
			out, _ := mask(t, set, cut(rng, []byte(text), 1+rng.IntN(7))...)
			got := string(out)
			for i := range values {
				got = strings.ReplaceAll(got, fmt.Sprintf("[masked:s%d]", i), "***")
			}
			if want := naive(text, values); got != want {
				t.Fatalf("values %q, text %q:\n got %q\nwant %q", values, text, got, want)
			}
		}
	}
}

// The default run takes a quarter of the longest value, make leakhunt all of it.
func TestLongPEM(t *testing.T) {
	size := masker.LongestValue / 4
	if *leakProbes >= 1_000_000 {
		size = masker.LongestValue
	}
	rng := rand.New(rand.NewPCG(1, 1))
	value := pemText(rng, "PRIVATE KEY", (size-200)/65)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	set := masker.New()
	if _, err := set.Add("big", value); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := masker.NewWriter(&out, set)
	_, _ = w.Write([]byte("before "))
	_, _ = w.Write(value)
	_, _ = w.Write([]byte(" between "))
	_, _ = w.Write(b64(value))
	_, _ = w.Write([]byte(" after"))
	runtime.GC()
	runtime.ReadMemStats(&after)
	_ = w.Close()
	if !bytes.HasPrefix(out.Bytes(), []byte("before [masked:big]\n between ")) {
		t.Errorf("%.200q came out", out.Bytes())
	}
	// Between the stems of two lines a few symbols stay, less than six bytes.
	rests := strings.Split(out.String(), "[masked:big]")
	for _, rest := range rests[3 : len(rests)-1] { // the last line is a public header
		if len(rest) > 10 {
			t.Errorf("%q came out", rest)
			break
		}
	}
	grown := (after.HeapAlloc - before.HeapAlloc) >> 20
	t.Logf("%d MiB in use", grown)
	if grown > 150 {
		t.Errorf("%d MiB in use", grown)
	}
	_ = set.Close()
}
