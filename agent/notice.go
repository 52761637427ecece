package agent

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/masker"
)

// notices are the agent's own lines in the stream "events": what it did and saw,
// as JSON lines with time and event. A nil *notices takes none.
type notices struct {
	mu     sync.Mutex
	w      *masker.Writer
	mask   *masker.Set
	closed bool
}

func newNotices(w *masker.Writer, mask *masker.Set) *notices { return &notices{w: w, mask: mask} }

// add writes one line. What cannot be written is no reason to end a job: the
// log streams beside it meet the same disk.
func (n *notices) add(event string, fields map[string]any) {
	if n == nil {
		return
	}
	line := map[string]any{"time": time.Now().UTC().Format(time.RFC3339Nano), "event": event}
	for k, v := range fields {
		line[k] = v
	}
	b, err := json.Marshal(line)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		_, _ = n.w.Write(append(maskStrings(n.mask, b), '\n'))
	}
}

// close ends the stream; later notices are dropped, since the claim has its length.
func (n *notices) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	return n.w.Close()
}
