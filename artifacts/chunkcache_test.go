package artifacts

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/projections"
)

// gated is object storage with one object, whose reads wait for the gate.
type gated struct {
	Objects
	data  []byte
	asked chan struct{}
	gate  chan struct{}
}

func (g *gated) Get(ctx context.Context, _ string, _, _ int64) (io.ReadCloser, error) {
	g.asked <- struct{}{}
	select {
	case <-g.gate:
		return io.NopCloser(bytes.NewReader(g.data)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func gatedChunk(t *testing.T, content string) (*gated, projections.LogChunk) {
	t.Helper()
	data := bundle.EncodeFrames([]bundle.Frame{{Micros: 1, Data: []byte(content)}})
	return &gated{data: data, asked: make(chan struct{}, 8), gate: make(chan struct{})},
		projections.LogChunk{ObjectKey: "chunk", Bytes: int64(len(content)), ObjectBytes: int64(len(data)), SHA256: bundle.Sum(data).String()}
}

// Readers that stop waiting for a chunk and the one that fetches it do not meet.
func TestReadersLeaveWhileAChunkIsFetched(t *testing.T) {
	for range 50 {
		o, row := gatedChunk(t, "content")
		var c chunkCache
		ctx, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			into := make([]byte, 16)
			if n, err := c.read(t.Context(), o, bundle.Stdout, row, 0, into); err != nil || string(into[:n]) != "content" {
				t.Errorf("who fetches: %q, %v", into[:n], err)
			}
		})
		<-o.asked
		for range 4 {
			wg.Go(func() {
				into := make([]byte, 16)
				if n, err := c.read(ctx, o, bundle.Stdout, row, 0, into); err == nil && string(into[:n]) != "content" || err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("who left: %q, %v", into[:n], err)
				}
			})
		}
		go leave()
		close(o.gate)
		wg.Wait()
	}
}

// Who waits for another's fetch does not get that one's deadline.
func TestAFetchOutOfTimeIsDoneAgainByWhoWaits(t *testing.T) {
	o, row := gatedChunk(t, "content")
	var c chunkCache
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.read(short, o, bundle.Stdout, row, 0, make([]byte, 16)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who had little time: %v", err)
		}
	})
	<-o.asked
	wg.Go(func() {
		into := make([]byte, 16)
		if n, err := c.read(t.Context(), o, bundle.Stdout, row, 0, into); err != nil || string(into[:n]) != "content" {
			t.Errorf("who had more: %q, %v", into[:n], err)
		}
	})
	<-o.asked // once more
	close(o.gate)
	wg.Wait()
}
