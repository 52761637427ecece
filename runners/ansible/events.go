package ansible

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// event is one line of the event stream, as far as the executor reads it.
type event struct {
	Seq         int64           `json:"seq"`
	Time        time.Time       `json:"time"`
	Event       string          `json:"event"`
	Core        string          `json:"ansible_core"`
	Play        string          `json:"play"`
	Pattern     string          `json:"pattern"`
	Task        string          `json:"task"`
	TaskUUID    string          `json:"task_uuid"`
	Action      string          `json:"action"`
	Role        string          `json:"role"`
	Path        string          `json:"path"`
	Tags        []string        `json:"tags"`
	Host        string          `json:"host"`
	Changed     bool            `json:"changed"`
	Ignored     bool            `json:"ignored"`
	DelegatedTo string          `json:"delegated_to"`
	Diff        []fileDiff      `json:"diff"`
	Hosts       json.RawMessage `json:"hosts"`
	Custom      json.RawMessage `json:"custom"`
	Result      json.RawMessage `json:"result"`
}

// fileDiff is what one task would change, or changed, in one file.
type fileDiff struct {
	Before    string `json:"before"`
	After     string `json:"after"`
	Added     int    `json:"added"`
	Removed   int    `json:"removed"`
	Unified   string `json:"unified"`
	Truncated bool   `json:"truncated"`
}

// maxEventLine bounds one line; the plugin keeps below it.
const maxEventLine = 16 << 20

// eventReader keeps the stream in a file, byte for byte, and hands each event on.
// It reads to the end whatever happens: ansible waits while nobody reads.
type eventReader struct {
	keep   io.Writer
	handle func(event)
	seq    int64
	broken error // why the stream cannot be trusted; nil if it can
}

func (r *eventReader) run(from io.Reader) {
	br := bufio.NewReaderSize(from, 64<<10)
	var line []byte
	over := false
	for {
		part, err := br.ReadSlice('\n')
		if len(part) > 0 {
			r.store(part)
			if over = over || len(line)+len(part) > maxEventLine; !over {
				line = append(line, part...)
			}
		}
		switch {
		case err == nil:
			if over {
				r.fail(fmt.Errorf("an event is longer than %d bytes", maxEventLine))
			} else {
				r.line(line)
			}
			line, over = line[:0], false
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			if len(line) > 0 {
				r.fail(errors.New("the last event is cut off"))
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				r.fail(fmt.Errorf("reading the event stream: %w", err))
			}
			return
		}
	}
}

func (r *eventReader) store(part []byte) {
	if r.keep == nil {
		return
	}
	if _, err := r.keep.Write(part); err != nil {
		r.fail(fmt.Errorf("keeping the event stream: %w", err))
		r.keep = nil
	}
}

func (r *eventReader) line(line []byte) {
	var e event
	if err := json.Unmarshal(bytes.TrimSuffix(line, []byte("\n")), &e); err != nil {
		r.fail(errors.New("an event is no JSON of the expected form"))
		return
	}
	if e.Seq != r.seq+1 {
		r.fail(fmt.Errorf("event %d follows event %d", e.Seq, r.seq))
	}
	r.seq = e.Seq
	r.handle(e)
}

func (r *eventReader) fail(err error) {
	if r.broken == nil {
		r.broken = err
	}
}
