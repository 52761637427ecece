package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// holds measures what requests that wait for work cost: memory of the service for
// each, and the time from submit until one of many is answered beside the same
// where only one waits. The clients are bare connections, which take next to no
// memory of their own while they wait: half a kilobyte of what is measured.
func holds(ctx context.Context, b *bench) error {
	many, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer many.done()
	few, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer few.done()
	runners, err := b.enrol(ctx, many, b.held)
	if err != nil {
		return err
	}
	lone, err := b.enrol(ctx, few, b.wakes()+1)
	if err != nil {
		return err
	}
	many.control.CloseIdle()
	before := memory()
	crowd := make([]*held, len(runners))
	if err := b.each(ctx, workers, func(c int) (err error) {
		for i := c; i < len(runners) && err == nil; i += workers {
			crowd[i], err = hold(ctx, many, runners[i])
		}
		return err
	}); err != nil {
		return err
	}
	defer func() {
		for _, h := range crowd {
			_ = h.conn.Close()
		}
	}()
	wait(ctx, time.Second)
	b.add(figure{Name: fmt.Sprintf("memory of a held request, %d held", b.held), Unit: "KiB", ours: []float64{(memory() - before) / float64(b.held) / 1024}})
	return b.wakeUps(ctx, many, few, crowd, lone)
}

// wakes is how many requests are woken in all.
func (b *bench) wakes() int { return min(b.samples/3, b.held/2) }

// enrol registers n runners.
func (b *bench) enrol(ctx context.Context, s *service, n int) ([]*runner, error) {
	out := make([]*runner, n)
	err := b.each(ctx, workers, func(c int) (err error) {
		for i := c; i < n && err == nil; i += workers {
			if out[i], err = s.runner(ctx); err == nil {
				out[i].client.CloseIdle()
			}
		}
		return err
	})
	return out, err
}

// memory is what the program holds after a collection, in bytes.
func memory() float64 {
	runtime.GC()
	runtime.GC() // what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// held is a request that waits, as a bare connection.
type held struct{ conn net.Conn }

func hold(ctx context.Context, s *service, r *runner) (*held, error) {
	base, err := url.Parse(s.plane.URL())
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(wire.CommandsRequest{FreeSlots: 1, TokenSHA256: []string{sha(uuid.NewString())}})
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", base.Host)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "POST /v1/runners/%s/commands?wait=30 HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nIdempotency-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		r.id, base.Host, r.bearer, newKey(), len(body), body)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &held{conn}, nil
}

// answer reads the answer and reports whether it brings an offer.
func (h *held) answer() (bool, error) {
	resp, err := http.ReadResponse(bufio.NewReader(h.conn), nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("a held request was answered %d: %s", resp.StatusCode, raw)
	}
	var got wire.Commands
	err = json.Unmarshal(raw, &got)
	return len(got.Offers) > 0, err
}

// wakeUps submits jobs one at a time, in turns where many wait and where one does.
func (b *bench) wakeUps(ctx context.Context, many, few *service, crowd []*held, lone []*runner) error {
	woken := make(chan time.Time, len(crowd))
	var listening sync.WaitGroup
	for _, h := range crowd {
		listening.Go(func() {
			if offered, err := h.answer(); err == nil && offered {
				woken <- time.Now()
			}
		})
	}
	defer func() {
		for _, h := range crowd {
			_ = h.conn.Close()
		}
		listening.Wait()
	}()
	var ours, peers []float64
	for i := range b.wakes() {
		began := time.Now()
		if err := many.submit(ctx); err != nil {
			return err
		}
		select {
		case at := <-woken:
			ours = append(ours, ms(at.Sub(began)))
		case <-time.After(holdTime):
			return fmt.Errorf("after %d jobs no request was woken", i)
		case <-ctx.Done():
			return ctx.Err()
		}
		took, err := wakeOne(ctx, few, lone[i])
		if err != nil {
			return err
		}
		peers = append(peers, ms(took))
	}
	for _, p := range []struct {
		name string
		at   float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		b.add(figure{Name: fmt.Sprintf("submit to answer of one of %d, %s", b.held, p.name), Unit: "ms", PeerName: "ms with one held",
			ours: []float64{percentile(ours, p.at)}, peers: []float64{percentile(peers, p.at)}})
	}
	return nil
}

func wakeOne(ctx context.Context, s *service, r *runner) (time.Duration, error) {
	h, err := hold(ctx, s, r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = h.conn.Close() }()
	wait(ctx, restTime)
	began := time.Now()
	if err := s.submit(ctx); err != nil {
		return 0, err
	}
	offered, err := h.answer()
	if err == nil && !offered {
		err = fmt.Errorf("a held request was answered without an offer")
	}
	return time.Since(began), err
}
