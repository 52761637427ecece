package receiver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/platform-core/execution-plane-service/examples/controlplane/receiver"
)

const (
	oldSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	other     = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func open(t *testing.T, dir string) (*receiver.Receiver, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	r, err := receiver.Open(receiver.Options{Dir: dir, Secrets: []string{oldSecret, newSecret}, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, &out
}

func post(t *testing.T, r *receiver.Receiver, secret, id, body string, at time.Time) int {
	t.Helper()
	hook, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := hook.Sign(id, at, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("webhook-id", id)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	req.Header.Set("Execution-Sequence", "42")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Code
}

func body(attempt string) string {
	return fmt.Sprintf(`{"attempt_id":%q,"status":"succeeded","contract":[{"kind":"capability","name":"http","verdict":"confirmed"},{"kind":"evidence","name":"log","verdict":"confirmed"}],`+
		`"evidence":[{"id":"e1","name":"open","capability":"http","result":"passed"},{"id":"e2","name":"log","result":"inconclusive"}],"raw_output_bundle":{"state":"complete","uri":"s3://b/x"}}`, attempt)
}

func TestReceives(t *testing.T) {
	dir := t.TempDir()
	r, out := open(t, dir)
	now := time.Now()
	for name, c := range map[string]struct {
		secret string
		at     time.Time
		want   int
	}{
		"another secret": {other, now, 401},
		"too old":        {oldSecret, now.Add(-6 * time.Minute), 401},
		"too new":        {oldSecret, now.Add(6 * time.Minute), 401},
	} {
		if got := post(t, r, c.secret, "w1", body("a1"), c.at); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if len(r.Deliveries()) != 0 {
		t.Error("a result was kept that nobody signed")
	}
	for i, want := range []struct {
		secret, id, body string
		status           int
	}{
		{oldSecret, "w1", body("a1"), 200},
		{newSecret, "w1", body("a1"), 200},       // again
		{newSecret, "w2", body("a2"), 200},       // after a rotation
		{newSecret, "w2", body("a2") + " ", 409}, // other bytes under one id
		{newSecret, "w3", body("a2") + " ", 409}, // other bytes of one attempt
		{newSecret, "w4", body("a2"), 200},       // the same result to another endpoint
		{newSecret, "w5", `{"no":"result"}`, 400},
	} {
		if got := post(t, r, want.secret, want.id, want.body, now); got != want.status {
			t.Errorf("request %d: %d, want %d", i, got, want.status)
		}
	}
	if got := strings.Count(out.String(), "attempt a1 succeeded, contract confirmed; capability http confirmed by e1; evidence log confirmed by e2 BUT its evidence says missing; bundle complete s3://b/x"); got != 1 {
		t.Errorf("attempt a1 is told %d times: %s", got, out)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := post(t, r, oldSecret, "w9", body("a9"), now); got != 500 {
		t.Errorf("after its end it answers %d", got)
	}

	// A line that was being written when the process ended was never acknowledged.
	journal := filepath.Join(dir, "results.ndjson")
	f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"webhook_id":"w6","atte`)
	f.Close()
	again, _ := open(t, dir)
	if got := post(t, again, oldSecret, "w1", body("a1"), now); got != 200 {
		t.Errorf("a repeat after a restart: %d", got)
	}
	if got := post(t, again, oldSecret, "w6", body("a6"), now); got != 200 {
		t.Errorf("the one that was cut off: %d", got)
	}
	var ids []string
	for _, d := range again.Deliveries() {
		ids = append(ids, d.AttemptID)
		if string(d.Body) != body(d.AttemptID) || d.Sequence != 42 {
			t.Errorf("kept of %s: %s", d.AttemptID, d.Body)
		}
	}
	if strings.Join(ids, " ") != "a1 a2 a6" {
		t.Errorf("kept %v", ids)
	}
	if requests, repeats := again.Counts(); requests != 2 || repeats != 1 {
		t.Errorf("%d requests, %d repeats", requests, repeats)
	}
}

func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	r, _ := open(t, dir)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if got := post(t, r, oldSecret, fmt.Sprint("w", i/2), body(fmt.Sprint("a", i/2)), time.Now()); got != 200 {
				t.Errorf("request %d: %d", i, got)
			}
		})
	}
	wg.Wait()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, dir)
	if got := len(again.Deliveries()); got != 100 {
		t.Errorf("%d results on the disk, want 100", got)
	}
}

func TestCatchUp(t *testing.T) {
	type item struct {
		Cursor    string          `json:"cursor"`
		AttemptID string          `json:"attempt_id"`
		Result    json.RawMessage `json:"result"`
	}
	items := []item{
		{"1.1", "a1", json.RawMessage(body("a1"))},
		{"1.2", "a2", json.RawMessage(strings.Replace(body("a2"), `"contract"`, ` "contract"`, 1))},
		{"1.3", "a3", json.RawMessage(body("a3"))},
	}
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after := r.URL.Query().Get("after")
		asked = append(asked, after)
		if r.Header.Get("Authorization") != "Bearer ep_x" {
			w.WriteHeader(401)
			return
		}
		var next item
		for _, x := range items {
			if x.Cursor > after {
				next = x
				break
			}
		}
		if next.Cursor == "" {
			fmt.Fprintf(w, `{"items":[],"next":%q}`, after)
			return
		}
		// By hand: an encoder would write the result's bytes anew.
		fmt.Fprintf(w, `{"items":[{"cursor":%q,"attempt_id":%q,"result":%s}],"next":%q}`, next.Cursor, next.AttemptID, next.Result, next.Cursor)
	}))
	defer s.Close()
	r, _ := open(t, t.TempDir())
	for _, a := range []string{"a1", "a2"} {
		post(t, r, oldSecret, "w-"+a, body(a), time.Now())
	}
	if _, err := r.CatchUp(t.Context(), s.Client(), s.URL, "wrong"); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a wrong token: %v", err)
	}
	got, err := r.CatchUp(t.Context(), s.Client(), s.URL, "ep_x")
	if err != nil || got.Same != 1 || got.New != 1 || strings.Join(got.Different, " ") != "a2" || got.Cursor != "1.3" {
		t.Errorf("%+v, %v", got, err)
	}
	if d, ok := r.Delivery("a3"); !ok || string(d.Body) != body("a3") {
		t.Errorf("the pulled result is not kept: %s", d.Body)
	}
	// It comes late by push, with the same bytes.
	if code := post(t, r, oldSecret, "w-a3", body("a3"), time.Now()); code != 200 {
		t.Errorf("pushed after it was pulled: %d", code)
	}
	got, err = r.CatchUp(t.Context(), s.Client(), s.URL, "ep_x")
	if err != nil || got.Same+got.New+len(got.Different) != 0 || asked[len(asked)-1] != "1.3" {
		t.Errorf("the second time: %+v, %v, asked %v", got, err, asked)
	}
}
