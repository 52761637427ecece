package artifacts_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
)

var memoryLog = flag.Int("memory.mib", 32, "MiB of log that the memory test writes and reads; 1024 for a whole GiB")

// heap samples the memory of live and dead objects until the returned function is
// called, which gives the growth.
func heap() (growth func() int64) {
	read := func() int64 {
		s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(s)
		return int64(s[0].Value.Uint64())
	}
	runtime.GC()
	before, most := read(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for t := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				t.Stop()
				return
			case <-t.C:
				most = max(most, read())
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-done
		return most - before
	}
}

const mostGrowth = 64 << 20

// The service's memory does not follow what it is sent or asked for: 20 uploads at
// once, 20 downloads at once, a whole log, 20 followers that do not read. Object
// storage and the callers, which are in this process too, count against it here.
func TestMemoryIsBounded(t *testing.T) {
	const callers = 20
	d := deploy(t, steady())
	one := d.replica()
	content := bytes.Repeat([]byte("0123456789abcde\n"), bundle.MaxChunk/16)
	frames := bundle.AppendFrame(nil, 1, content)
	each := max(1, *memoryLog/callers)
	var ids []domain.AttemptID
	var leases []client.Lease
	var hands []*hand
	for range callers {
		h := d.hand(one.URL())
		id, l := h.running()
		ids, leases, hands = append(ids, id), append(leases, l), append(hands, h)
	}
	measure := func(what string, work func(i int) error) {
		t.Helper()
		growth := heap()
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				if err := work(i); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		wg.Wait()
		if g := growth(); g > mostGrowth {
			t.Errorf("%s: the heap grew by %d MiB", what, g>>20)
		} else {
			t.Logf("%s: the heap grew by %d MiB", what, g>>20)
		}
	}
	measure("20 uploads at once", func(i int) error {
		for n := range each {
			if _, err := hands[i].client.SendLog(t.Context(), newKey(), leases[i], "stdout", int64(n)*bundle.MaxChunk, frames); err != nil {
				return err
			}
		}
		return nil
	})
	measure("20 downloads at once", func(i int) error { return d.download(one.URL(), ids[i], int64(each)*bundle.MaxChunk) })

	// One long log.
	for n := each; n < *memoryLog; n++ {
		if _, err := hands[0].client.SendLog(t.Context(), newKey(), leases[0], "stdout", int64(n)*bundle.MaxChunk, frames); err != nil {
			t.Fatal(err)
		}
	}
	measure(fmt.Sprintf("a log of %d MiB", *memoryLog), func(i int) error {
		if i > 0 {
			return nil
		}
		return d.download(one.URL(), ids[0], int64(*memoryLog)*bundle.MaxChunk)
	})

	// Followers that take the head and read no more hold no connection to the database.
	measure("20 followers that do not read", func(i int) error {
		return d.stuckFollower(one.URL(), ids[0], func() {
			for one.Pool.Stat().AcquiredConns() > 2 { // the listener, and whoever works just now
				runtime.Gosched()
			}
		})
	})
}

// download reads a stream from its start, piece by piece, and keeps nothing.
func (d *deployment) download(url string, id domain.AttemptID, size int64) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for at := int64(0); at < size; {
		req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, fmt.Sprintf("%s/v1/attempts/%s/log?stream=stdout&limit=%d&offset=%d", url, id, 4<<20, at), nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+d.control)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || n == 0 {
			return fmt.Errorf("status %d, %d bytes at %d: %w", resp.StatusCode, n, at, err)
		}
		at += n
	}
	return nil
}

// stuckFollower follows a log over a connection that takes the first bytes and then
// nothing, until stuck has returned.
func (d *deployment) stuckFollower(url string, id domain.AttemptID, stuck func()) error {
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Minute)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET /v1/attempts/%s/log?follow=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\n\r\n", id, d.control)
	if err != nil {
		return err
	}
	line, err := bufio.NewReaderSize(conn, 1<<10).ReadString('\n')
	if err != nil || !strings.Contains(line, "200") {
		return fmt.Errorf("%q: %w", line, err)
	}
	time.Sleep(300 * time.Millisecond) // until the connection's buffers are full
	stuck()
	return nil
}
