package agent

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// shy hides its field from fmt's %v, not from JSON.
type shy struct{ Inner string }

func (shy) String() string { return "shy" }

// The agent's own log shows no secret in any part of a line, whether it was known
// when a logger was made or not, and says all else as before.
func TestAgentLogIsMasked(t *testing.T) {
	const value = "s3cr3t-Value-99"
	for name, handler := range map[string]func(*lockedBuffer) slog.Handler{
		"text": func(b *lockedBuffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *lockedBuffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			out, registry, set := &lockedBuffer{}, newMaskRegistry(), masker.New()
			log := registry.logger(slog.New(handler(out)))
			early := log.With("early", "has "+value).WithGroup("group " + value)
			if _, err := set.Add("vault://kv/a#b", []byte(value)); err != nil {
				t.Fatal(err)
			}
			registry.add(set)
			registry.add(set)
			early.Info("says "+value, "text", value, "number", 7, "error", fmt.Errorf("because: %w", errors.New(value)), "bytes", []byte(value),
				"any", map[string]string{value: value}, "shy", shy{value}, "pointer", &struct{ A string }{value}, slog.Group("inner", value, value))
			log.Info("a line of no attempt", "quoted", fmt.Sprintf("%q", value))
			if got := out.String(); strings.Contains(got, value) || strings.Count(got, "[masked") < 12 || !strings.Contains(got, "7") {
				t.Errorf("logged %s", got)
			}
			registry.remove(set)
			if err := set.Close(); err != nil {
				t.Fatal(err)
			}
			log.Info("afterwards", "count", 3)
			if got := out.String(); !strings.Contains(got, "afterwards") || len(registry.live()) != 0 {
				t.Errorf("logged %s", got)
			}
		})
	}
}

// verbose is an error that tells more where it is asked to.
type verbose struct{ inner string }

func (verbose) Error() string { return "failed" }
func (v verbose) Format(f fmt.State, verb rune) {
	if f.Flag('+') {
		_, _ = fmt.Fprint(f, v.inner)
		return
	}
	_, _ = fmt.Fprint(f, "failed")
}

// marshalled is an error that is written as JSON or as text.
type marshalled struct{ inner string }

func (marshalled) Error() string                  { return "failed" }
func (m marshalled) MarshalJSON() ([]byte, error) { return json.Marshal(m.inner) }

type asText struct{ inner string }

func (asText) String() string                 { return "plain" }
func (asText) MarshalJSON() ([]byte, error)   { return []byte(`"plain"`), nil }
func (a asText) MarshalText() ([]byte, error) { return []byte(a.inner), nil }

// late gives its text when a handler asks.
type late struct{ inner string }

func (l late) LogValue() slog.Value { return slog.GroupValue(slog.Any("inner", shy{l.inner})) }

type namedBytes []byte

// A value has more than one text, and the handler chooses. None of them is shown.
func TestEveryFormOfALoggedValueIsMasked(t *testing.T) {
	value := "s3cr3t-Value-99"
	long := strings.Repeat(value+" and more of it\n", 2000) // too long for lists of decimal bytes
	setOf := func(values ...string) *masker.Set {
		set := masker.New()
		for _, v := range values {
			if _, err := set.Add("v", []byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		return set
	}
	short, both := setOf(value), setOf(value, long)
	for name, handler := range map[string]func(*lockedBuffer) slog.Handler{
		"text": func(b *lockedBuffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *lockedBuffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var none *marshalled
		for what, v := range map[string]any{
			"verbose error": verbose{value}, "error as JSON": marshalled{value}, "text": asText{value}, "late": late{value},
			"raw JSON": json.RawMessage(`{"a":"` + value + `"}`), "named bytes": namedBytes(value), "long bytes": namedBytes(long),
			"map in list": []any{map[string]any{"k": value}}, "wrapped": fmt.Errorf("so: %w", verbose{value}), "nil": none,
		} {
			out, registry := &lockedBuffer{}, newMaskRegistry()
			if what == "long bytes" {
				registry.add(both)
			} else {
				registry.add(short)
			}
			registry.logger(slog.New(handler(out))).Info("says", "what", v)
			if got := out.String(); strings.Contains(got, value) || strings.Contains(got, base64.StdEncoding.EncodeToString([]byte(value))) || !strings.Contains(got, "says") {
				t.Errorf("%s, %s: logged %.300s", name, what, got)
			}
		}
	}
}

// A secret of one attempt may be the middle of a secret of another.
func TestSecretsOfSeveralAttemptsInOneLine(t *testing.T) {
	const inner, outer = "Middle-7731", "front-8842-Middle-7731-back-9953"
	out, registry := &lockedBuffer{}, newMaskRegistry()
	for _, v := range []string{inner, outer, inner} {
		set := masker.New()
		name := "vault://kv/" + v[:5]
		if _, err := set.Add(name, []byte(v)); err != nil {
			t.Fatal(err)
		}
		registry.add(set)
	}
	log := registry.logger(slog.New(slog.NewTextHandler(out, nil)))
	log.Info("says "+outer, "only", "here is "+inner)
	got := out.String()
	for _, part := range []string{"front-", "-back", "8842", "9953", inner} {
		if strings.Contains(got, part) {
			t.Errorf("it shows %s: %s", part, got)
		}
	}
	if !strings.Contains(got, "here is [masked:vault://kv/Middl]") {
		t.Errorf("what two attempts have is not told as such: %s", got)
	}
}

func TestMaskedJSONStaysJSON(t *testing.T) {
	set := masker.New()
	if _, err := set.Add("pin", []byte("48151623")); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"pin":"48151623"}`: `{"pin":"[masked:pin]"}`,
		`{"pin":48151623}`:   `"{\"pin\":[masked:pin]}"`,
		`[1,2]`:              `[1,2]`,
	} {
		if got := string(maskJSON(set, []byte(in))); got != want {
			t.Errorf("%s becomes %s", in, got)
		}
	}
}

func TestTextsAndBinaries(t *testing.T) {
	whole := strings.Repeat("a", firstBlock-1)
	for _, tc := range []struct {
		block string
		text  bool
	}{
		{"", true}, {"plain\r\n\ttext \x1b[31m", true}, {"größe", true}, {"a\x00b", false}, {"\xff\xfea", false}, {"caf\xe9", false},
		{whole + "\xc3", true}, {whole[:firstBlock-3] + "\xf0\x9f\x98", true}, {whole + "\xff", false},
	} {
		if got := isText([]byte(tc.block), len(tc.block) == firstBlock); got != tc.text {
			t.Errorf("%.20q (%d bytes) is a text: %v", tc.block, len(tc.block), got)
		}
	}
}

// The shim's words are masked as one stream, however they are cut.
func TestDiagnosticsAreMaskedAcrossWrites(t *testing.T) {
	const value = "s3cr3t-Value-99"
	set := masker.New()
	if _, err := set.Add("v", []byte(value)); err != nil {
		t.Fatal(err)
	}
	var notes []string
	d := &diagnostics{lines: lineNotes{note: func(s string) { notes = append(notes, s) }}}
	d.w = masker.NewWriter(&d.lines, set)
	for _, b := range []byte("shim: broken order: " + value + "\nnext line\n" + value[:10]) {
		if _, err := d.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	d.close()
	if _, err := d.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(notes, "|")
	if len(notes) != 3 || strings.Contains(got, value[:10]) || !strings.Contains(got, "next line") {
		t.Errorf("notes %q", notes)
	}
}
