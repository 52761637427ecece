package deliverytest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/deliverytest"
)

func startPeer(t *testing.T) (*deliverytest.Peer, *webhooks.Webhook) {
	t.Helper()
	peer, err := deliverytest.StartPeer(filepath.Join(t.TempDir(), "received"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
	})
	hook, err := webhooks.NewWebhook(peer.Secret())
	if err != nil {
		t.Fatal(err)
	}
	return peer, hook
}

// call pushes a body as the service does; ok says that it was answered 2xx in whole.
func call(t *testing.T, p *deliverytest.Peer, hook *webhooks.Webhook, id string, seq int64, body []byte) (ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := hook.Sign(id, now, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(webhooks.HeaderWebhookID, id)
	req.Header.Set(webhooks.HeaderWebhookTimestamp, fmt.Sprint(now.Unix()))
	req.Header.Set(webhooks.HeaderWebhookSignature, signature)
	req.Header.Set("Execution-Sequence", fmt.Sprint(seq))
	c := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode/100 == 2
}

func result(id domain.AttemptID) []byte {
	return fmt.Appendf(nil, `{"attempt_id":%q,"status":"succeeded"}`, id)
}

// Every fault keeps the sender from a good answer, and the slow one does not.
func TestPeerFails(t *testing.T) {
	peer, hook := startPeer(t)
	for _, f := range append(deliverytest.Faults(), deliverytest.Slow, deliverytest.None) {
		peer.Set(f)
		id := domain.NewID[domain.AttemptID](uuid.New())
		good := f == deliverytest.Slow || f == deliverytest.None
		if ok := call(t, peer, hook, uuid.NewString(), 1, result(id)); ok != good {
			t.Errorf("fault %q: answered well: %t", f, ok)
		}
		if n := peer.Met(f); n != 1 {
			t.Errorf("fault %q was met %d times", f, n)
		}
		_, kept := peer.Receiver.Delivery(id.String())
		if want := good || f == deliverytest.Late || f == deliverytest.MidBody; kept != want {
			t.Errorf("fault %q: kept %t", f, kept)
		}
	}
}

// What is pushed to the right ones is found right, and each deviation is found.
func TestComparePush(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*deliverytest.Pushed)
		want   string
	}{
		"right":       {func(*deliverytest.Pushed) {}, ""},
		"no callback": {func(p *deliverytest.Pushed) { p.Callbacks = nil }, "has no callback"},
		"not there": {func(p *deliverytest.Pushed) {
			p.Results[0].AttemptID = domain.NewID[domain.AttemptID](uuid.New())
			p.Callbacks[0].CallbackID = domain.CallbackIDOf("one", p.Results[0].AttemptID)
		}, "does not have it"},
		"other bytes":   {func(p *deliverytest.Pushed) { p.Results[0].Result = json.RawMessage(`{}`) }, "pulled as"},
		"other digest":  {func(p *deliverytest.Pushed) { p.Callbacks[0].ResultSHA256 = "" }, "with digest"},
		"another place": {func(p *deliverytest.Pushed) { p.Results[0].Cursor = "1.8" }, "with sequence"},
		"unwanted":      {func(p *deliverytest.Pushed) { p.Endpoints[0].OnlyNamed = true }, "does not want"},
		"not pulled":    {func(p *deliverytest.Pushed) { p.Results = nil }, "is of no result"},
	} {
		t.Run(name, func(t *testing.T) {
			peer, hook := startPeer(t)
			id := domain.NewID[domain.AttemptID](uuid.New())
			callback, body := domain.CallbackIDOf("one", id), result(id)
			if !call(t, peer, hook, callback.String(), 7, body) {
				t.Fatal("the receiver does not take it")
			}
			d, _ := peer.Receiver.Delivery(id.String())
			p := deliverytest.Pushed{
				Endpoints: []deliverytest.Endpoint{{Name: "one", Peer: peer}},
				Results:   []wire.ResultItem{{Cursor: "1.7", AttemptID: id, Result: body}},
				Callbacks: []wire.Callback{{CallbackID: callback, Endpoint: "one", AttemptID: id, State: domain.CallbackDone, ResultSHA256: d.SHA256, ResultBytes: int64(len(body))}},
				About:     func(domain.AttemptID) (environment, callbackRef string) { return "test", "" },
			}
			tc.change(&p)
			got := strings.Join(deliverytest.ComparePush(p).Faults, "\n")
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("faults %q, want %q", got, tc.want)
			}
		})
	}
}
