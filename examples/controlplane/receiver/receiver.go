package receiver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// maxBody is more than any result has.
const maxBody = 16 << 20

// Options say how to receive.
type Options struct {
	Dir     string    // where results are kept; made if it is not there
	Secrets []string  // whsec_…; one that fits is enough, so that secrets can be changed
	Out     io.Writer // gets one line for each new result; nil: none
}

// Delivery is one result that was kept.
type Delivery struct {
	WebhookID string    `json:"webhook_id,omitempty"` // empty: it was pulled
	AttemptID string    `json:"attempt_id"`
	Sequence  int64     `json:"sequence,omitempty"` // of the feed; not signed, a hint
	SHA256    string    `json:"sha256"`             // of Body, in hex
	Body      []byte    `json:"body"`               // the exact bytes
	At        time.Time `json:"at"`
}

// Receiver is an http.Handler. It may be used by any number of goroutines.
type Receiver struct {
	hooks   []*webhooks.Webhook
	journal *journal

	mu       sync.Mutex
	out      io.Writer           // guarded by mu
	byID     map[string]kept     // by webhook id; guarded by mu
	byTry    map[string]Delivery // by attempt id; guarded by mu
	order    []string            // attempt ids in the order of arrival; guarded by mu
	requests int                 // guarded by mu
	repeats  int                 // guarded by mu
}

// kept is what was written under a webhook id, and where in the journal it ends.
type kept struct {
	sha256 string
	end    int64
}

// Open reads what was received before.
func Open(o Options) (*Receiver, error) {
	r := &Receiver{out: o.Out, byID: map[string]kept{}, byTry: map[string]Delivery{}}
	if r.out == nil {
		r.out = io.Discard
	}
	if len(o.Secrets) == 0 {
		return nil, errors.New("no secret is given: without one nothing can be verified")
	}
	for i, s := range o.Secrets {
		h, err := webhooks.NewWebhook(s)
		if err != nil {
			return nil, fmt.Errorf("secret %d is not whsec_ and base64", i+1)
		}
		r.hooks = append(r.hooks, h)
	}
	j, err := openJournal(o.Dir, func(line []byte, end int64) error {
		var d Delivery
		if err := json.Unmarshal(line, &d); err != nil {
			return err
		}
		r.remember(d, end)
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.journal = j
	return r, nil
}

// Close ends writing. Requests after it are answered 500.
func (r *Receiver) Close() error { return r.journal.close() }

// ServeHTTP answers 200 once the result is on the disk, or was before; 401 for a
// signature or time that is not good; 409 for an id that came with other bytes.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests++
	r.mu.Unlock()
	status, text := r.receive(w, req)
	http.Error(w, text, status)
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) (status int, text string) {
	if req.Method != http.MethodPost {
		return http.StatusMethodNotAllowed, "send results by POST"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		return http.StatusBadRequest, "the body did not arrive whole"
	}
	if !r.verified(body, req.Header) {
		return http.StatusUnauthorized, "the signature or its time is not good"
	}
	result, err := ParseResult(body)
	if err != nil {
		return http.StatusBadRequest, "the body is no ExecutionResult"
	}
	sequence, _ := strconv.ParseInt(req.Header.Get("Execution-Sequence"), 10, 64) // a hint only
	d := Delivery{WebhookID: req.Header.Get(webhooks.HeaderWebhookID), AttemptID: result.AttemptID, Sequence: sequence,
		SHA256: digest(body), Body: body, At: time.Now().UTC()}
	fresh, err := r.keep(d)
	switch {
	case errors.Is(err, errOtherBytes):
		r.print("ALARM: " + err.Error())
		return http.StatusConflict, "this id or attempt came with other bytes before"
	case err != nil:
		r.print("cannot keep a result, it will come again: " + err.Error())
		return http.StatusInternalServerError, "the result could not be kept"
	case fresh:
		r.print(result.Summary())
		return http.StatusOK, "kept"
	}
	return http.StatusOK, "known"
}

// verified says whether a signature fits one of the secrets and is at most five
// minutes old or ahead.
func (r *Receiver) verified(body []byte, h http.Header) bool {
	for _, hook := range r.hooks {
		if hook.Verify(body, h) == nil {
			return true
		}
	}
	return false
}

var errOtherBytes = errors.New("a result came with other bytes than before")

// keep writes a result that is new. It returns once it is safe, whoever wrote it.
func (r *Receiver) keep(d Delivery) (fresh bool, err error) {
	r.mu.Lock()
	if k, ok := r.byID[d.WebhookID]; ok && d.WebhookID != "" {
		r.repeats++
		r.mu.Unlock()
		if k.sha256 != d.SHA256 {
			return false, fmt.Errorf("%w: webhook id %s", errOtherBytes, d.WebhookID)
		}
		return false, r.journal.sync(k.end)
	}
	if before, ok := r.byTry[d.AttemptID]; ok && before.SHA256 != d.SHA256 {
		r.mu.Unlock()
		return false, fmt.Errorf("%w: attempt %s", errOtherBytes, d.AttemptID)
	}
	line, err := json.Marshal(d)
	if err != nil {
		r.mu.Unlock()
		return false, err
	}
	end, err := r.journal.append(line)
	if err == nil {
		fresh = r.remember(d, end)
	}
	r.mu.Unlock()
	if err != nil {
		return false, err
	}
	return fresh, r.journal.sync(end)
}

// remember says whether the attempt is new; mu is held, or nobody else is there yet.
func (r *Receiver) remember(d Delivery, end int64) bool {
	if d.WebhookID != "" {
		r.byID[d.WebhookID] = kept{d.SHA256, end}
	}
	if _, ok := r.byTry[d.AttemptID]; ok {
		return false
	}
	r.byTry[d.AttemptID] = d
	r.order = append(r.order, d.AttemptID)
	return true
}

func (r *Receiver) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.out, line) // a lost line of output is no lost result
}

// Deliveries gives what was kept, one for each attempt, in the order of arrival.
func (r *Receiver) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Delivery, 0, len(r.order))
	for _, id := range r.order {
		out = append(out, r.byTry[id])
	}
	return out
}

// Delivery gives what was kept of an attempt.
func (r *Receiver) Delivery(attemptID string) (Delivery, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.byTry[attemptID]
	return d, ok
}

// Counts gives how many requests came, and how many of them were repeats of a
// webhook id that was known.
func (r *Receiver) Counts() (requests, repeats int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.repeats
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
