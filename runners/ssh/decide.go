package ssh

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/agent/executor/decide"
	"github.com/platform-core/execution-plane-service/policy"
)

// recorder sends messages of the executor protocol. It keeps the first error, since
// work on a host goes on without a reader.
type recorder struct {
	control *executor.Control

	mu   sync.Mutex
	err  error
	told map[string]bool // input digests of decisions already recorded
}

// maxDials bounds how many distinct allowed addresses one attempt reports: a name
// with ever new addresses must not flood the ledger. A refusal is always reported.
const maxDials = 32

func (r *recorder) keep(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *recorder) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) progress(phase, format string, args ...any) {
	r.keep(r.control.Progress(phase, 0, 0, fmt.Sprintf(format, args...)))
}

// decided records a verdict once, and gives an error that names its reasons where
// it denies.
func (r *recorder) decided(subject string, v policy.Verdict) error {
	r.mu.Lock()
	again := r.told[v.InputDigest] || v.Allow && len(r.told) >= maxDials
	r.told[v.InputDigest] = true
	r.mu.Unlock()
	if !again {
		r.record(subject, v)
	}
	if v.Allow {
		return nil
	}
	var reasons []string
	for _, reason := range v.Reasons {
		reasons = append(reasons, reason.Code+" ("+reason.Detail+")")
	}
	return deniedf("policy refuses %s: %s", subject, strings.Join(reasons, ", "))
}

func (r *recorder) record(subject string, v policy.Verdict) {
	fact, err := decide.Fact(plain(subject), v)
	if err != nil {
		r.keep(err)
		return
	}
	r.keep(r.control.Fact(fact))
}

// guard asks policy about the very address that is about to be dialled.
func (j *job) guard(host string, addr netip.AddrPort) error {
	return j.rec.decided(host+" at "+addr.String(), j.bundle.CheckDialOf(j.input, host, addr))
}

// clip gives one printable line of at most so many bytes.
func clip(s string, most int) string {
	s = plain(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most-3], "") + "…"
	}
	return s
}
