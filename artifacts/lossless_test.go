package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

var (
	losslessSeed  = flag.Uint64("lossless.seed", 0, "seed of the log intake's random uploads; 0: a new one")
	losslessLives = flag.Int("lossless.attempts", 3, "attempts of the log intake's random uploads")
)

// harms makes a gateway do harm to a part of the requests that match.
func harms(seed uint64, share int, match func(*http.Request) bool) func(*http.Request) string {
	r := rand.New(rand.NewPCG(seed, uint64(share)))
	return func(q *http.Request) string { // called under the gateway's lock
		if !match(q) || r.IntN(100) >= share {
			return ""
		}
		kind := []string{"500", "reset", "lost", "half"}[r.IntN(4)]
		if kind == "half" {
			q.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(q.Body, q.ContentLength/2), q.Body}
			return ""
		}
		return kind
	}
}

// uploader sends one stream as an agent does, and as one would that is confused.
type uploader struct {
	t      *testing.T
	r      *rand.Rand
	h      *hand
	client *client.Client // through the gateway
	lease  client.Lease
	old    client.Lease // of the epoch before
	stream string
	whole  []byte
	acked  int64 // what the service has said that it has
	tried  int64 // the end of whatever was sent in order
	// salvage says that the lease is lost, and refusals are in order once the window is over.
	salvage bool
	ended   bool
}

// text is the stream's content: every place in it looks different.
func text(r *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(r.UintN(256))
	}
	return out
}

func (u *uploader) frames(from, to int64) []byte {
	var out []byte
	for at := from; at < to; {
		n := min(to-at, 1+u.r.Int64N(3000))
		out = bundle.AppendFrame(out, 1_900_000_000_000_000+at, u.whole[at:at+n])
		at += n
	}
	return out
}

// step sends something. What the service says must fit what was sent.
func (u *uploader) step() {
	left := int64(len(u.whole)) - u.acked
	size := min(left, 1+u.r.Int64N(6000))
	if u.r.IntN(12) == 0 {
		size = min(left, bundle.MaxChunk)
	}
	switch kind := u.r.IntN(20); {
	case kind < 12:
		u.send(u.acked, u.acked+size)
	case kind < 14 && u.acked > 0: // an old part again
		from := u.r.Int64N(u.acked)
		u.send(from, from+min(u.acked-from, 1+u.r.Int64N(5000)))
	case kind < 15 && left > 2: // one that leaves a hole, before the one that fills it
		from := u.acked + 1 + u.r.Int64N(left-1)
		u.send(from, min(int64(len(u.whole)), from+size))
	case kind < 16 && u.acked > 0 && left > 0: // one that overlaps
		u.send(u.acked-1-u.r.Int64N(u.acked), u.acked+size)
	case kind < 17:
		u.stale(size)
	default: // the same at once under two keys, as after a timeout
		answers := make(chan func(), 2)
		a, b := u.frames(u.acked, u.acked+size), u.frames(u.acked, u.acked+size)
		from, to, floor := u.acked, u.acked+size, u.acked
		for _, f := range [][]byte{a, b} {
			go func() {
				have, err := u.post(u.lease, from, f)
				answers <- func() { u.heard(floor, from, to, have, err) }
			}()
		}
		(<-answers)()
		(<-answers)()
	}
}

func (u *uploader) post(l client.Lease, from int64, frames []byte) (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	a, err := u.client.SendLog(ctx, newKey(), l, u.stream, from, frames)
	return a.Offset, err
}

func (u *uploader) send(from, to int64) {
	if from >= to {
		return
	}
	have, err := u.post(u.lease, from, u.frames(from, to))
	u.heard(u.acked, from, to, have, err)
}

// heard checks an answer and takes what it says; floor is what was acknowledged
// when the request was sent.
func (u *uploader) heard(floor, from, to, have int64, err error) {
	if from <= u.tried {
		u.tried = max(u.tried, to)
	}
	var p *client.ProblemError
	switch {
	case err == nil:
		if have < to || have > u.tried {
			u.t.Errorf("%s: [%d, %d) is answered %d; acknowledged were %d, sent %d", u.stream, from, to, have, u.acked, u.tried)
		}
		u.acked = max(u.acked, have)
	case errors.As(err, &p) && p.Problem.Status == http.StatusRequestedRangeNotSatisfiable:
		have, ok := client.Offset(err)
		if !ok || have < floor || have > u.tried {
			u.t.Errorf("%s: 416 for [%d, %d) says %d; acknowledged were %d, sent %d", u.stream, from, to, have, u.acked, u.tried)
		}
		if from == have {
			u.t.Errorf("%s: [%d, %d) is refused with the offset that it has", u.stream, from, to)
		}
		u.acked = max(u.acked, have)
	case errors.As(err, &p) && (p.Problem.Status == http.StatusGone || p.Problem.Status == http.StatusConflict):
		if !u.salvage {
			u.t.Errorf("%s: [%d, %d): %v", u.stream, from, to, err)
		}
		u.ended = u.ended || p.Problem.Status == http.StatusGone
	case client.IsUnavailable(err), errors.Is(err, client.ErrUnreachable), client.CodeOf(err) == "body_broken", errors.As(err, &p) && p.Problem.Status >= 500:
		// It may have been stored: the next answer tells.
	default:
		u.t.Errorf("%s: [%d, %d): %v", u.stream, from, to, err)
	}
}

// stale sends under the lease that was given back: nothing of it is taken.
func (u *uploader) stale(size int64) {
	if u.old.Token == "" || size == 0 {
		return
	}
	_, err := u.post(u.old, u.acked, bundle.AppendFrame(nil, 1, []byte(strings.Repeat("x", int(size)))))
	var p *client.ProblemError
	if errors.As(err, &p) && p.Problem.Status < 500 && p.Problem.Status != http.StatusConflict && p.Problem.Status != http.StatusGone && p.Problem.Code != "body_broken" || err == nil {
		u.t.Errorf("%s: a write under the old epoch: %v", u.stream, err)
	}
}

// Agent-like uploads through everything that can go wrong between the runner, the
// service and object storage: what was acknowledged is there once and in order,
// refusals say where to go on, and the ledger's chunks are within their bounds.
func TestLogIntakeIsLossless(t *testing.T) {
	t.Parallel()
	seed := *losslessSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: go test ./artifacts -run Lossless -lossless.seed=%[1]d", seed)
	d := deploy(t, steady())
	one, two := d.replica(), d.replica()
	front := newGateway(t, strings.TrimPrefix(one.URL(), "http://"))
	other := newGateway(t, strings.TrimPrefix(two.URL(), "http://"))
	isLog := func(q *http.Request) bool {
		return strings.HasSuffix(q.URL.Path, "/log") && q.Method == http.MethodPost
	}
	front.set(harms(seed, 15, isLog))
	other.set(harms(seed+1, 15, isLog))
	d.s3.set(harms(seed, 10, func(q *http.Request) bool { return q.Method == http.MethodPut }))
	var wg sync.WaitGroup
	for i := range *losslessLives {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		h := d.hand(one.URL())
		wg.Go(func() { d.livedThrough(r, h, i%3 == 2, front, other, two) })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	// Objects that no event names are left, and harm nobody.
	d.s3.set(nil)
	d.eventually("all are sealed", func() bool {
		counts, err := d.desk.Reads.StateCounts(t.Context())
		d.must(err)
		return counts["finalizing"] == 0 && counts["running"] == 0
	})
	var chunks, wide, torn int
	d.must(d.pool.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE bytes > $1 OR object_bytes > $2),
		count(*) FILTER (WHERE log_offset <> before) FROM (SELECT *, coalesce(lag(log_offset + bytes) OVER (PARTITION BY attempt_id, log_stream ORDER BY log_offset), 0) AS before FROM log_index) x`,
		bundle.MaxChunk, bundle.MaxChunkEncoded).Scan(&chunks, &wide, &torn))
	if chunks == 0 || wide != 0 || torn != 0 {
		t.Errorf("%d chunks, %d too large, %d that do not follow the one before", chunks, wide, torn)
	}
}

// livedThrough is one attempt, sent by one runner through two replicas, completed or lost.
func (d *deployment) livedThrough(r *rand.Rand, h *hand, lost bool, front, other *gateway, read *replica) {
	id, lease, old := h.secondEpoch()
	streams := []string{"stdout", "stderr"}
	var ups []*uploader
	for n, stream := range streams {
		g := []*gateway{front, other}[n]
		c, err := client.New(client.Config{BaseURL: g.URL, Token: h.token})
		if err != nil {
			d.t.Error(err)
			return
		}
		defer c.CloseIdle()
		seeds := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		ups = append(ups, &uploader{t: d.t, r: seeds, h: h, client: c, lease: lease, old: old, stream: stream, whole: text(seeds, 20_000+seeds.IntN(500_000))})
	}
	each := func(until func(*uploader) bool) {
		var wg sync.WaitGroup
		for _, u := range ups {
			wg.Go(func() {
				for n := 0; !until(u) && n < 5000 && !d.t.Failed(); n++ {
					u.step()
				}
			})
		}
		wg.Wait()
	}
	if lost {
		each(func(u *uploader) bool { return u.acked > int64(len(u.whole))/2 })
		if _, err := d.desk.Commands.Tick(context.Background(), id, commands.TickOptions{EvictedRunner: h.id}); err != nil {
			d.t.Errorf("lose the runner: %v", err)
		}
		for _, u := range ups {
			u.salvage = true
		}
		each(func(u *uploader) bool { return u.ended || u.acked == int64(len(u.whole)) })
	} else {
		each(func(u *uploader) bool { return u.acked == int64(len(u.whole)) })
		if err := h.complete(lease, map[string]string{"stdout": string(ups[0].whole), "stderr": string(ups[1].whole)}); err != nil {
			d.t.Errorf("complete: %v", err)
		}
	}
	for _, u := range ups {
		u.checkEnd(read, id)
	}
}

// checkEnd reads the stream, from wherever, after the attempt's end.
func (u *uploader) checkEnd(read *replica, id domain.AttemptID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tail := read.operator.TailLog(ctx, id, u.stream, 0)
	defer tail.Close()
	var got []byte
	for {
		data, err := tail.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			u.t.Errorf("%s: read after %d bytes: %v", u.stream, len(got), err)
			return
		}
		got = append(got, data...)
	}
	switch {
	case !bytes.HasPrefix(u.whole, got):
		u.t.Errorf("%s: the %d bytes read are not those that were sent", u.stream, len(got))
	case int64(len(got)) < u.acked:
		u.t.Errorf("%s: %d bytes are there, %d were acknowledged", u.stream, len(got), u.acked)
	case !u.salvage && len(got) != len(u.whole):
		u.t.Errorf("%s: %d bytes of %d", u.stream, len(got), len(u.whole))
	}
	if _, err := u.post(u.lease, int64(len(got)), []byte("not even frames")); client.CodeOf(err) == "" {
		u.t.Errorf("%s: after the end: %v", u.stream, err)
	}
	late := append(bytes.Clone(u.whole), 'x')
	_, err := u.h.client.SendLog(ctx, newKey(), u.lease, u.stream, int64(len(got)), bundle.AppendFrame(nil, 1, late[len(got):min(len(late), len(got)+100)]))
	var p *client.ProblemError
	if !errors.As(err, &p) || p.Problem.Status != http.StatusGone {
		u.t.Errorf("%s: log after the seal: %v", u.stream, err)
	}
}

// secondEpoch is a running attempt in its second epoch, with the lease of the first.
func (h *hand) secondEpoch() (domain.AttemptID, client.Lease, client.Lease) {
	ctx := context.Background()
	spec, raw, err := jobSpec()
	if err == nil {
		_, err = h.d.desk.Commands.Submit(ctx, meta("submit"), spec, raw)
	}
	if err != nil {
		h.d.t.Error(err)
		return domain.AttemptID{}, client.Lease{}, client.Lease{}
	}
	id := spec.AttemptID
	var leases []client.Lease
	v, err := h.d.desk.Reads.Attempt(ctx, id)
	for n := range 2 {
		token := fmt.Sprintf("lease-token-%d-%s", n, id)
		var a domain.Attempt
		if err == nil {
			for a, err = h.d.desk.Commands.Offer(ctx, id, v.SpecText, domain.Offer{RunnerID: h.id, Pool: "default", TokenSHA256: sha(token)}); client.CodeOf(err) == "" && codeOf(err) == "illegal_transition"; {
				time.Sleep(50 * time.Millisecond) // a released attempt rests before its next offer
				a, err = h.d.desk.Commands.Offer(ctx, id, v.SpecText, domain.Offer{RunnerID: h.id, Pool: "default", TokenSHA256: sha(token)})
			}
		}
		if err != nil {
			h.d.t.Errorf("offer: %v", err)
			return id, client.Lease{}, client.Lease{}
		}
		leases = append(leases, client.Lease{ID: a.Lease.ID, Epoch: a.Epoch, Token: token})
		if n == 0 {
			_, err = h.client.Release(ctx, newKey(), leases[0], "declined")
		} else {
			_, err = h.client.Start(ctx, newKey(), leases[1], wire.StartRequest{Isolation: "process"})
		}
	}
	if err != nil {
		h.d.t.Errorf("start: %v", err)
	}
	return id, leases[1], leases[0]
}
