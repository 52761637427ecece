package bundle_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/bundle"
)

func opener(store map[string][]byte) func(string) (io.ReadCloser, error) {
	return func(key string) (io.ReadCloser, error) {
		data, ok := store[key]
		if !ok {
			return nil, fmt.Errorf("reading %s: %w", key, bundle.ErrObjectMissing)
		}
		return io.NopCloser(bytes.NewReader(data)), nil
	}
}

func problems(t *testing.T, m bundle.Manifest, open func(string) (io.ReadCloser, error)) map[string][]bundle.Problem {
	t.Helper()
	found, err := bundle.Verify(m, open)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]bundle.Problem{}
	for _, d := range found {
		out[d.Key] = append(out[d.Key], d.Problem)
		if d.Want == "" || d.Got == "" || !strings.Contains(d.String(), d.Key) {
			t.Errorf("difference says too little: %s", d)
		}
	}
	return out
}

func TestVerifyFindsNothingInAWholeBundle(t *testing.T) {
	m, store := sample()
	if got := problems(t, m, opener(store)); len(got) > 0 {
		t.Errorf("differences in a whole bundle: %v", got)
	}
}

// Every byte of every object, changed or lost, must be named.
func TestVerifyNamesEveryDifference(t *testing.T) {
	m, whole := sample()
	for _, o := range m.Objects {
		damaged := func(change func(map[string][]byte)) map[string][]byte {
			store := map[string][]byte{}
			for k, v := range whole {
				store[k] = bytes.Clone(v)
			}
			change(store)
			return store
		}
		want := func(what string, store map[string][]byte, p ...bundle.Problem) {
			t.Helper()
			if diff := cmp.Diff(map[string][]bundle.Problem{o.Key: p}, problems(t, m, opener(store))); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", what, o.Name, diff)
			}
		}
		want("without", damaged(func(s map[string][]byte) { delete(s, o.Key) }), bundle.Missing)
		want("with more of", damaged(func(s map[string][]byte) { s[o.Key] = append(s[o.Key], 0) }), bundle.WrongSize, bundle.WrongBytes)
		for i := range whole[o.Key] {
			want("a changed byte in", damaged(func(s map[string][]byte) { s[o.Key][i] ^= 0x20 }), bundle.WrongBytes)
		}
	}
	all := problems(t, m, opener(nil))
	if len(all) != len(m.Objects) {
		t.Errorf("an empty store gives %d differences, want %d", len(all), len(m.Objects))
	}
}

func TestVerifyComparesWholeLogs(t *testing.T) {
	m, store := sample()
	m.Logs[0].SHA256 = bundle.Sum([]byte("another log of 12"))
	want := map[string][]bundle.Problem{"logs/stdout": {bundle.WrongLog}}
	if diff := cmp.Diff(want, problems(t, m, opener(store))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVerifyDecodesChunks(t *testing.T) {
	m, store := sample()
	for name, data := range map[string][]byte{
		"no frames":         []byte("hello\n"),
		"another length":    bundle.AppendFrame(nil, 1, []byte("hell")),
		"more than a chunk": bytes.Repeat(bundle.AppendFrame(nil, 1, make([]byte, bundle.MaxFrame)), 64),
	} {
		o := &m.Objects[1]
		o.SHA256, o.Bytes = bundle.Sum(data), int64(len(data))
		o.Key = bundle.LogChunkKey(m.Prefix(), bundle.Stdout, 0, o.SHA256)
		store[o.Key] = data
		want := map[string][]bundle.Problem{o.Key: {bundle.BadFrames}}
		if diff := cmp.Diff(want, problems(t, m, opener(store))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestVerifyDoesNotCallAFailureMissing(t *testing.T) {
	m, _ := sample()
	gone := errors.New("connection refused")
	for name, open := range map[string]func(string) (io.ReadCloser, error){
		"open": func(string) (io.ReadCloser, error) { return nil, gone },
		"read": func(string) (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(gone)), nil },
	} {
		got := problems(t, m, open)
		for key, p := range got {
			if len(p) != 1 || p[0] != bundle.Unreadable {
				t.Errorf("%s: %s is %v, want unreadable", name, key, p)
			}
		}
		if len(got) != len(m.Objects) {
			t.Errorf("%s: %d differences, want %d", name, len(got), len(m.Objects))
		}
	}
	m.Schema = 9
	if _, err := bundle.Verify(m, opener(nil)); err == nil {
		t.Error("an invalid manifest was verified")
	}
}
