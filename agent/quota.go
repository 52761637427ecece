package agent

import (
	"bytes"
	"fmt"
	"io"
	"sync/atomic"
)

// quotaTail is how much of a stream's end is kept after the quota was reached.
const quotaTail = 64 << 10

// quotaWriter stands between the masker and a stream. Until the attempt's quota
// is used up every byte passes. Then a marker line is written at once, bytes are
// counted and dropped, and Close writes how many they were and the last of them:
// nothing is cut in silence.
type quotaWriter struct {
	dst   io.Writer
	left  *atomic.Int64 // of the attempt, shared by its streams
	quota int64
	// reached is called once, when bytes begin to be dropped.
	reached func()
	// lost is told at the end how many bytes are missing for good.
	lost func(int64)

	full  bool
	bytes int64 // dropped, those in tail included
	lines int64
	tail  []byte
}

func (q *quotaWriter) Write(p []byte) (int, error) {
	if !q.full {
		if q.left.Add(-int64(len(p))) >= 0 {
			return q.dst.Write(p)
		}
		q.full = true
		keep := max(int64(len(p))+q.left.Load(), 0)
		keep = min(keep, int64(len(p)))
		if keep > 0 {
			if n, err := q.dst.Write(p[:keep]); err != nil {
				return n, err
			}
		}
		marker := fmt.Sprintf("\n[execution-plane] the log quota of %d bytes is used up; what follows is left out, except for the end\n", q.quota)
		if _, err := io.WriteString(q.dst, marker); err != nil {
			return int(keep), err
		}
		q.reached()
		q.drop(p[keep:])
		return len(p), nil
	}
	q.drop(p)
	return len(p), nil
}

func (q *quotaWriter) drop(p []byte) {
	q.bytes += int64(len(p))
	q.lines += int64(bytes.Count(p, []byte{'\n'}))
	if len(p) >= quotaTail {
		q.tail = append(q.tail[:0], p[len(p)-quotaTail:]...)
		return
	}
	if over := len(q.tail) + len(p) - quotaTail; over > 0 {
		q.tail = append(q.tail[:0], q.tail[over:]...)
	}
	q.tail = append(q.tail, p...)
}

// Close says what was dropped. It does not close the stream.
func (q *quotaWriter) Close() error {
	if !q.full {
		return nil
	}
	q.full = false // a second Close says nothing
	lost := q.bytes - int64(len(q.tail))
	q.lost(lost)
	lines := q.lines - int64(bytes.Count(q.tail, []byte{'\n'}))
	marker := fmt.Sprintf("[execution-plane] %d bytes and %d line ends are left out here; the last %d bytes follow\n", lost, lines, len(q.tail))
	if _, err := io.WriteString(q.dst, marker); err != nil {
		return err
	}
	_, err := q.dst.Write(q.tail)
	return err
}
