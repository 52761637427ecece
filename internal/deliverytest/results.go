package deliverytest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/examples/controlplane/receiver"
)

// Pushed is what is known of results.
type Pushed struct {
	Endpoints []Endpoint
	Results   []wire.ResultItem // all of GET /v1/results
	Callbacks []wire.Callback   // all of GET /v1/callbacks
	// About tells an attempt's environment and the endpoint that its JobSpec names.
	About func(domain.AttemptID) (environment, callbackRef string)
}

// PushReport says how push compares with pull.
type PushReport struct {
	Delivered, Pending, Exhausted int
	Faults                        []string
}

func (r *PushReport) fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

// ComparePush checks that each result is delivered, byte for byte, to every endpoint
// that wants it and to no other, or that its callback says why not; and that nothing
// was pushed that is not pulled. That signatures are right, the receiver has said:
// it keeps nothing else.
func ComparePush(p Pushed) (r PushReport) {
	rows := map[domain.CallbackID]wire.Callback{}
	for _, c := range p.Callbacks {
		if _, twice := rows[c.CallbackID]; twice {
			r.fault("callback %s is listed twice", c.CallbackID)
		}
		rows[c.CallbackID] = c
	}
	expected, before := map[string]bool{}, int64(0)
	for _, item := range p.Results {
		at, err := eventstore.ParseCursor(item.Cursor)
		if err != nil || at.Seq <= before {
			r.fault("the result of %s has the cursor %s after %d: %v", item.AttemptID, item.Cursor, before, err)
		}
		before = at.Seq
		environment, ref := p.About(item.AttemptID)
		for _, e := range p.Endpoints {
			if !e.Wants(environment, ref) {
				continue
			}
			expected[e.Name+" "+item.AttemptID.String()] = true
			id := domain.CallbackIDOf(e.Name, item.AttemptID)
			row, ok := rows[id]
			delete(rows, id)
			if !ok {
				r.fault("the result of %s has no callback to %s", item.AttemptID, e.Name)
				continue
			}
			r.one(e, item, at.Seq, row)
		}
	}
	for _, row := range rows {
		r.fault("callback %s to %s of %s is of no result that the endpoint wants", row.CallbackID, row.Endpoint, row.AttemptID)
	}
	for _, e := range p.Endpoints {
		for _, d := range e.Peer.Receiver.Deliveries() {
			if !expected[e.Name+" "+d.AttemptID] {
				r.fault("%s got the result of %s, which it does not want", e.Name, d.AttemptID)
			}
		}
		for _, s := range e.Peer.Stray() {
			r.fault("%s got %s", e.Name, s)
		}
	}
	return r
}

func (r *PushReport) one(e Endpoint, item wire.ResultItem, seq int64, row wire.Callback) {
	sum := sha256.Sum256(item.Result)
	if row.ResultSHA256 != hex.EncodeToString(sum[:]) || row.ResultBytes != int64(len(item.Result)) {
		r.fault("callback %s is of %d bytes with digest %s; pulled are %d with %x", row.CallbackID, row.ResultBytes, row.ResultSHA256, len(item.Result), sum)
	}
	d, got := e.Peer.Receiver.Delivery(item.AttemptID.String())
	if got {
		r.same(e, item, seq, row, d)
	}
	switch row.State {
	case domain.CallbackDone:
		r.Delivered++
		if !got {
			r.fault("the result of %s counts as delivered to %s, which does not have it", item.AttemptID, e.Name)
		}
	case domain.CallbackPending:
		r.Pending++
	default:
		r.Exhausted++
	}
}

func (r *PushReport) same(e Endpoint, item wire.ResultItem, seq int64, row wire.Callback, d receiver.Delivery) {
	if !bytes.Equal(d.Body, item.Result) {
		r.fault("the result of %s is pushed to %s as\n%s\nand pulled as\n%s", item.AttemptID, e.Name, d.Body, item.Result)
	}
	if d.WebhookID != row.CallbackID.String() || d.Sequence != seq {
		r.fault("%s got the result of %s as %s with sequence %d, want %s and %d", e.Name, item.AttemptID, d.WebhookID, d.Sequence, row.CallbackID, seq)
	}
}
