package sim

import (
	"context"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

var (
	errTimeout = errors.New("no answer came in time")
	errRefused = errors.New("connection refused")
)

// call is a request to whichever replica answers, and what is done with the answer.
type call struct {
	id      uint64  // of this message; another for each try
	from    *runner // nil: the control plane or an operator, who are always reachable
	what    string
	command domain.CommandID // under which the service stores it; zero if it stores nothing
	timeout time.Duration
	do      func(ctx context.Context, r *replica) (any, error)
	reply   func(v any, err error) // once, by the loop
}

// send sends a request. The network may lose it, its answer, or deliver it twice;
// the sender then gets errTimeout and does not know. hangUp ends the request from
// the sender's side: no answer comes any more.
func (w *World) send(c call) (hangUp func()) {
	id := mix(w.Seed, c.id, name(c.what))
	r := dice(id)
	answered := false
	settle := func(v any, err error) {
		if !answered {
			answered = true
			c.reply(v, err)
		}
	}
	if c.timeout == 0 {
		c.timeout = 5 * time.Second
	}
	var serving []func()
	gone := r.IntN(4) == 0
	now := time.Now()
	w.loop.plan(now.Add(c.timeout), mix(id, 1), func() {
		if !answered {
			w.count("call", "timeout")
			for _, f := range serving {
				if gone { // the server notices that nobody waits any more
					f()
				}
			}
		}
		settle(nil, errTimeout)
	})
	deliver := func(n uint64, after time.Duration) {
		w.loop.plan(now.Add(after), mix(id, 2, n), func() {
			if c.from != nil && (c.from.cut.out || w.apiAway) {
				w.count("fault", "partitioned")
				return
			}
			to := w.pick(mix(id, 3, n))
			if to == nil {
				w.loop.plan(time.Now().Add(time.Millisecond), mix(id, 4, n), func() { settle(nil, errRefused) })
				return
			}
			serving = append(serving, w.spawn(mix(id, 5, n), to, func(ctx context.Context) { w.serve(ctx, c, mix(id, 6, n), to, settle) }))
		})
	}
	lost := w.on(LostMessages) && r.IntN(25) == 0
	after := w.travel(r)
	if lost {
		w.count("fault", "request_lost")
	} else {
		deliver(0, after)
	}
	if w.on(Duplicates) && r.IntN(15) == 0 {
		w.count("fault", "duplicate")
		again := time.Duration(r.IntN(8_000)) * time.Millisecond
		if r.IntN(6) == 0 {
			again *= 10 // long after the sender forgot
		}
		deliver(1, again)
	}
	return func() {
		answered = true
		for _, f := range serving {
			f()
		}
	}
}

// travel is how long a message is on its way.
func (w *World) travel(r interface{ IntN(int) int }) time.Duration {
	d := time.Duration(200+r.IntN(2_000)) * time.Microsecond
	if w.on(Delays) && r.IntN(12) == 0 {
		w.count("fault", "delayed")
		d += time.Duration(r.IntN(7_000)) * time.Millisecond
	}
	return d
}

// serve carries a request out on a replica and sends the answer back.
func (w *World) serve(ctx context.Context, c call, id uint64, to *replica, settle func(any, error)) {
	stored, life := w.obs.stored(c.command), to.life
	v, err := c.do(ctx, to)
	if to.life != life {
		err = errKilled
	}
	w.obs.answered(c, v, err, stored)
	w.count("answer", c.what+" "+word(err))
	if domain.KindOf(err) == domain.KindOverloaded && c.what != "submit" {
		w.obs.violate("I15", domain.AttemptID{}, "%s was refused for the length of the queue: %v", c.what, err)
	}
	r := dice(id)
	if errors.Is(err, errKilled) {
		w.loop.plan(time.Now().Add(time.Millisecond), mix(id, 1), func() { settle(nil, errKilled) })
		return
	}
	if w.on(LostMessages) && r.IntN(25) == 0 {
		w.count("fault", "reply_lost")
		return
	}
	w.loop.plan(time.Now().Add(w.travel(r)), mix(id, 2), func() {
		if c.from != nil && (c.from.cut.in || w.apiAway) {
			w.count("fault", "partitioned")
			return
		}
		settle(v, err)
	})
}

// word names an error briefly.
func word(err error) string {
	var e *domain.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, eventstore.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, errKilled):
		return "killed"
	case errors.Is(err, errTimeout):
		return "timeout"
	case errors.Is(err, errRefused):
		return "refused"
	case errors.Is(err, errObjectsAway):
		return "objects_away"
	}
	return "other: " + err.Error()
}

// definite reports whether an answer settles what became of a request. Any other
// answer is repeated under the same command id.
func definite(err error) bool {
	var e *domain.Error
	if err == nil {
		return true
	}
	return errors.As(err, &e) && e.Kind != domain.KindUnavailable && e.Kind != domain.KindOverloaded
}

// pick chooses a replica that is up; nil if none is.
func (w *World) pick(key uint64) *replica {
	var up []*replica
	for _, r := range w.replicas {
		if r.up {
			up = append(up, r)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[dice(key).IntN(len(up))]
}

// meta makes what a request carries. The digest stands for the request's bytes.
func meta(id domain.CommandID, who, role string) commands.Meta {
	m := commands.Meta{CommandID: id, Actor: eventstore.Actor{Kind: role, ID: who, Role: role, Auth: "token"}}
	u := id.UUID()
	copy(m.Digest[:], u[:])
	return m
}
