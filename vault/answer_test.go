package vault

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func FuzzPlain(f *testing.F) {
	for _, text := range []string{`"a"`, `""`, `"\""`, `"\\\/\b\f\n\r\t"`, `"\u00e9\ud83d\ude00"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\u0041"`, `"\udc00\ud800"`, `"\ud800\ud83d\ude00"`, `12`, `{"a":"b"}`, `null`, `"é"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		raw := json.RawMessage(strings.TrimSpace(text))
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		want := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &want); err != nil {
				return
			}
		}
		if got := string(plain(raw)); got != want {
			t.Fatalf("%s gives %q, want %q", raw, got, want)
		}
	})
}

func TestReadAllKeepsEveryByte(t *testing.T) {
	text := strings.Repeat("0123456789", 5000)
	for _, hint := range []int64{-1, 0, 10, int64(len(text)), 1 << 40} {
		got, err := readAll(iotest.HalfReader(strings.NewReader(text)), hint)
		if err != nil || string(got) != text {
			t.Errorf("hint %d: %d bytes, %v", hint, len(got), err)
		}
	}
}

func TestBoundedEndsALongAnswer(t *testing.T) {
	read := func(size int64) error {
		b := &bounded{ReadCloser: io.NopCloser(io.LimitReader(zeros{}, size)), left: 1000}
		_, err := io.Copy(io.Discard, b)
		return err
	}
	if err := read(1000); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if err := read(1001); !errors.Is(err, errAnswer) {
		t.Errorf("over the limit: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestValueIsNeverShown(t *testing.T) {
	const text = "correct-horse"
	v := newValue([]byte(text))
	type wrap struct {
		inner Value
		Outer Value
		Many  []Value
		Any   any
	}
	w := wrap{v, v, []Value{v}, &v}
	s := &Secret{Fields: []Field{{Name: "password", Value: v}}}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "s", s, "w", w)
	asJSON, err := json.Marshal([]any{v, s, w})
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(asJSON)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%c"} {
		for _, x := range []any{v, &v, w, &w, s, *s, s.Fields, map[string]Value{"a": v}} {
			shown = append(shown, fmt.Sprintf(verb, x))
		}
	}
	for _, out := range shown {
		for _, leak := range []string{text, fmt.Sprintf("%x", text), fmt.Sprintf("%X", text), fmt.Sprint([]byte(text)), strings.Trim(fmt.Sprint([]byte(text)), "[]")} {
			if strings.Contains(out, leak) {
				t.Errorf("shown: %s", out)
			}
		}
	}
	b := v.Bytes()
	s.Wipe()
	if strings.Trim(string(b), "\x00") != "" || v.Len() != 0 {
		t.Errorf("after Wipe: %q", b)
	}
	v.Wipe()
	(Value{}).Wipe()
	if (Value{}).Bytes() != nil {
		t.Error("the zero Value holds bytes")
	}
}
