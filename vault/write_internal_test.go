package vault

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/vault/api"
)

// What is written means what was given, and is as long as it was reckoned.
func FuzzQuoted(f *testing.F) {
	for _, text := range []string{"", "a", `"\`, "\x00\x1f\x7f\n\t", "<&>", "\u00e9\u2028\U0001f600", "\ufeff", `\u0041`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		out := appendQuoted(nil, []byte(text))
		var back string
		if err := json.Unmarshal(out, &back); err != nil || back != text {
			t.Fatalf("%q is written as %s: %v", text, out, err)
		}
		if n := quotedLen(text); n != len(out) || !bytes.Equal(out, appendQuoted(nil, text)) {
			t.Fatalf("%q has %d bytes, reckoned %d", text, len(out), n)
		}
	})
}

func TestWriteTextIsMadeInOnePiece(t *testing.T) {
	ref := Reference{Mount: "kv2", Path: "a"}
	fields := map[string][]byte{"a": []byte("first & \"second\""), "b": []byte(strings.Repeat("\x01<", 1000)), "c": []byte("c")}
	for _, createOnly := range []bool{false, true} {
		text, err := writeText(ref, fields, WriteOptions{CreateOnly: createOnly})
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Options map[string]int
			Data    map[string]string
		}
		if err := json.Unmarshal(text.text, &got); err != nil {
			t.Fatal(err)
		}
		if cas, ok := got.Options["cas"]; ok != createOnly || cas != 0 || len(got.Data) != 3 || got.Data["b"] != string(fields["b"]) {
			t.Errorf("got %+v", got)
		}
		size := 0
		for name, value := range fields {
			size += quotedLen(name) + quotedLen(value) + 2
		}
		if cap(text.text) > size+128 || len(text.text) > size+64 {
			t.Errorf("%d bytes in a buffer of %d, reckoned %d", len(text.text), cap(text.text), size)
		}
	}
}

// The text of a request is overwritten, but not while the transport may read it:
// here the answer comes before the body is taken.
func TestSentTextIsOverwritten(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/early" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		if r.URL.Path == "/v1/never" {
			<-release
		}
		got, err := io.ReadAll(r.Body)
		if err != nil && r.URL.Path == "/v1/whole" || !bytes.Equal(got, bytes.Repeat([]byte("s"), len(got))) {
			t.Errorf("%s: %d bytes arrived, %v", r.URL.Path, len(got), err)
		}
	}))
	defer srv.Close()
	defer close(release)
	pool := func(timeout time.Duration) (*endpoint, *api.Client) {
		e, err := newEndpoint(Config{Address: srv.URL, RequestTimeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.pool.CloseIdleConnections)
		c, err := e.client("")
		if err != nil {
			t.Fatal(err)
		}
		return e, c
	}
	overwritten := func(o *outgoing) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.readers == 0 && !bytes.Contains(o.text, []byte("s"))
	}
	for path, timeout := range map[string]time.Duration{"whole": time.Minute, "early": time.Minute, "never": 100 * time.Millisecond} {
		e, c := pool(timeout)
		text := &outgoing{text: bytes.Repeat([]byte("s"), 4<<20)}
		for range 2 {
			_, err := e.once(t.Context(), c, request{doing: "test", path: path, text: text})
			if (err == nil) != (path == "whole") {
				t.Errorf("%s: %v", path, err)
			}
		}
		if bytes.Contains(text.text, []byte{0}) {
			t.Errorf("%s: overwritten before it is done with", path)
		}
		text.done()
		// The transport lets go without a signal.
		deadline, poll := time.After(10*time.Second), time.NewTicker(time.Millisecond)
		for !overwritten(text) {
			select {
			case <-deadline:
				t.Fatalf("%s: not overwritten", path)
			case <-poll.C:
			}
		}
		poll.Stop()
	}
}
