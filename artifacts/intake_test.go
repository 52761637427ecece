package artifacts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

// A chunk is in object storage before the ledger names it, and the ledger names it
// before the runner hears of it.
func TestAChunkIsDurableBeforeItIsNamed(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	before := b.events(id)
	b.storage.set(errAway, nil)
	have, err := b.log(call, "stdout", 0, "one")
	if domain.KindOf(err) != domain.KindUnavailable || codeOf(err) != "storage_unavailable" || have != 0 || b.events(id) != before {
		t.Fatalf("without object storage: %d, %v, %d events", have, err, b.events(id)-before)
	}
	b.storage.set(nil, func(string) {
		if b.events(id) != before {
			t.Error("the chunk is named before it is stored")
		}
	})
	if have, err = b.log(call, "stdout", 0, "one"); have != 3 || err != nil || b.events(id) != before+1 {
		t.Errorf("%d, %v, %d events", have, err, b.events(id)-before)
	}
}

func TestLogOffsets(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	for _, c := range []struct {
		what   string
		offset int64
		text   string
		have   int64
		code   string
	}{
		{"the first", 0, "0123", 4, ""},
		{"it again: its answer was lost", 0, "0123", 4, ""},
		{"one that continues", 4, "4567", 8, ""},
		{"one that leaves a hole", 9, "9", 8, "log_offset"},
		{"one that overlaps", 6, "6789", 8, "log_offset"},
		{"an old part again", 4, "45", 8, ""},
		{"one that continues", 8, "89", 10, ""},
	} {
		have, err := b.log(call, "stdout", c.offset, c.text)
		if have != c.have || codeOf(err) != c.code {
			t.Errorf("%s: %d, %v", c.what, have, err)
		}
		var e *domain.Error
		if c.code != "" && (!errors.As(err, &e) || e.Details["offset"] != c.have) {
			t.Errorf("%s: the error does not say where to go on: %v", c.what, err)
		}
	}
	data, complete, err := b.logs.Read(t.Context(), id, "stdout", 0, 1000)
	if string(data) != "0123456789" || complete || err != nil {
		t.Errorf("read %q, %t, %v", data, complete, err)
	}
	for from := int64(0); from <= 10; from++ {
		for limit := 1; limit <= 11; limit++ {
			data, _, err := b.logs.Read(t.Context(), id, "stdout", from, limit)
			if want := "0123456789"[from:min(10, from+int64(limit))]; string(data) != want || err != nil {
				t.Errorf("from %d at most %d: %q, %v", from, limit, data, err)
			}
		}
	}
}

func TestRefusedChunks(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	before := b.events(id)
	whole := chunk("text")
	for name, c := range map[string]struct {
		stream string
		frames []byte
	}{
		"unknown stream": {"stdin", whole},
		"torn":           {"stdout", whole[:len(whole)-1]},
		"empty":          {"stdout", nil},
		"no frames":      {"stdout", []byte("text")},
		"too long":       {"stdout", bytes.Repeat(bundle.AppendFrame(nil, 1, bytes.Repeat([]byte("x"), bundle.MaxFrame)), bundle.MaxChunk/bundle.MaxFrame+1)},
	} {
		if _, _, err := b.intake.StoreLog(t.Context(), meta(name), call, c.stream, 0, c.frames); domain.KindOf(err) != domain.KindMalformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(b.storage.tried()) != 0 || b.events(id) != before {
		t.Errorf("stored %v, %d events", b.storage.tried(), b.events(id)-before)
	}
	stale := call
	stale.Epoch++
	if _, err := b.log(stale, "stdout", 0, "text"); codeOf(err) == "" || len(b.storage.tried()) != 0 {
		t.Errorf("another epoch: %v; stored %v", err, b.storage.tried())
	}
}

func announcement(name, content string) artifacts.Announcement {
	return artifacts.Announcement{Name: name, Type: "report", Sensitivity: "internal", MediaType: "text/plain", Bytes: int64(len(content)), SHA256: sha(content)}
}

func TestAnArtifactIsRegisteredWhenItsBytesAreStored(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	n := announcement("report.txt", "content")
	first, err := b.intake.Announce(t.Context(), meta("announce"), call, n)
	b.must(err)
	if first.Stored || first.Upload == nil || b.state(id).Artifacts != 0 {
		t.Fatalf("announced: %+v", first)
	}
	b.upload(first.Upload, "conTENT", false) // the right is for these bytes alone
	b.upload(first.Upload, "content", true)
	m := meta("register")
	for range 2 {
		second, err := b.intake.Announce(t.Context(), m, call, n)
		b.must(err)
		if !second.Stored || second.ID != first.ID || b.state(id).Artifacts != 1 {
			t.Errorf("registered: %+v", second)
		}
	}
	// Again under another key: nothing changes. Other bytes under the name: refused.
	if again, err := b.intake.Announce(t.Context(), meta("register"), call, n); err != nil || !again.Stored || b.state(id).Artifacts != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	other := announcement("report.txt", "other")
	up, err := b.intake.Announce(t.Context(), meta("announce"), call, other)
	if err == nil && up.Upload != nil {
		b.upload(up.Upload, "other", true)
		_, err = b.intake.Announce(t.Context(), meta("register"), call, other)
	}
	if codeOf(err) != "artifact_exists" || domain.KindOf(err) != domain.KindConflict {
		t.Errorf("other bytes under the same name: %v", err)
	}
}

func (b *bench) upload(u *artifacts.Upload, content string, taken bool) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), u.Method, u.URL, strings.NewReader(content))
	b.must(err)
	for k, v := range u.Headers {
		if !strings.EqualFold(k, "Content-Length") {
			req.Header.Set(k, v)
		}
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	b.must(err)
	resp.Body.Close()
	if ok := resp.StatusCode/100 == 2; ok != taken {
		b.t.Errorf("upload of %q: %s", content, resp.Status)
	}
}

func TestInlineArtifact(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	n := artifacts.Announcement{Name: "summary", Type: "summary", Sensitivity: "public", Inline: json.RawMessage(`{"ok":true}`)}
	got, err := b.intake.Announce(t.Context(), meta("inline"), call, n)
	if err != nil || !got.Stored || b.state(id).Artifacts != 1 || len(b.storage.tried()) != 0 {
		t.Errorf("%+v, %v, stored %v", got, err, b.storage.tried())
	}
}

func TestRefusedArtifacts(t *testing.T) {
	b := newBench(t, domain.FastProfile())
	id, call := b.started()
	before := b.events(id)
	for name, change := range map[string]func(*artifacts.Announcement){
		"no name":           func(n *artifacts.Announcement) { n.Name = "" },
		"no type":           func(n *artifacts.Announcement) { n.Type = "" },
		"secret":            func(n *artifacts.Announcement) { n.Sensitivity = "secret" },
		"no sensitivity":    func(n *artifacts.Announcement) { n.Sensitivity = "" },
		"no digest":         func(n *artifacts.Announcement) { n.SHA256 = "" },
		"upper-case digest": func(n *artifacts.Announcement) { n.SHA256 = strings.ToUpper(n.SHA256) },
		"negative size":     func(n *artifacts.Announcement) { n.Bytes = -1 },
		"long inline":       func(n *artifacts.Announcement) { n.Inline = json.RawMessage(`"` + strings.Repeat("x", 5000) + `"`) },
	} {
		n := announcement("a", "content")
		change(&n)
		if _, err := b.intake.Announce(t.Context(), meta(name), call, n); domain.KindOf(err) != domain.KindInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.events(id) != before || len(b.storage.tried()) != 0 {
		t.Errorf("%d events, stored %v", b.events(id)-before, b.storage.tried())
	}
}
