package sim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// Clients are concurrent callers whose calls are recorded. Each is a runner, a
// control plane and an operator at once; leases are shared, so that old holders
// write too.
type Clients struct {
	Services []*commands.Service // replicas on one store
	Number   int
	Attempts int
	Calls    int // of each client
	Seed     uint64
	// Row reads an attempt's row, where reads of rows are to be checked as well.
	Row func(ctx context.Context, id domain.AttemptID) (Output, error)

	runners []domain.RunnerID
	specs   []submitted
	mu      sync.Mutex
	leases  map[int][]held // by attempt; guarded by mu
}

type submitted struct {
	spec *domain.JobSpec
	raw  []byte
}

type held struct {
	call   commands.LeaseCall
	runner int
}

// Record lets the clients work, and returns what each call said, with the times
// between which it took effect.
func (c *Clients) Record(ctx context.Context) ([]porcupine.Operation, error) {
	c.leases = map[int][]held{}
	for range c.Number {
		c.runners = append(c.runners, domain.NewID[domain.RunnerID](uuid.New()))
	}
	for range c.Attempts {
		spec, raw := jobSpec(uuid.New(), uuid.New(), domain.Controls{TimeoutSeconds: 3600})
		c.specs = append(c.specs, submitted{spec, raw})
	}
	began := time.Now()
	histories := make([][]porcupine.Operation, c.Number)
	failures := make([]error, c.Number)
	var wg sync.WaitGroup
	for n := range c.Number {
		wg.Go(func() { histories[n], failures[n] = c.client(ctx, n, began) })
	}
	wg.Wait()
	var all []porcupine.Operation
	for _, h := range histories {
		all = append(all, h...)
	}
	return all, errors.Join(failures...)
}

// client works on a window of attempts that moves along: many clients meet on few.
func (c *Clients) client(ctx context.Context, n int, began time.Time) ([]porcupine.Operation, error) {
	r := mrand.New(mrand.NewPCG(c.Seed, uint64(n)))
	var out []porcupine.Operation
	for i := range c.Calls {
		first := i * (c.Attempts - 3) / c.Calls
		in, do := c.choose(r, n, first+r.IntN(3))
		op := porcupine.Operation{ClientId: n, Input: in, Call: int64(time.Since(began))}
		o := Output{Unknown: true}
		// One command id for all tries: together they are one operation. Some clients
		// give up before they know.
		tries := 1 + r.IntN(3)
		if in.Op == "offer" {
			tries = 1 // nobody repeats an offer: its second answer would say nothing of the first
		}
		for t := 0; t < tries && o.Unknown; t++ {
			got, err := do(ctx)
			if !definite(err) {
				continue
			}
			o = got
			o.Code = ok
			if t > 0 {
				o.Seen = nil // a repetition tells the attempt as it is by then
			}
			if err != nil {
				o = Output{Code: domainCode(err)}
				if o.Code == "" {
					return out, fmt.Errorf("%s: %w", in.Op, err)
				}
			}
		}
		op.Output, op.Return = o, int64(time.Since(began))
		if o.Unknown {
			op.Return = int64(time.Hour) // it may still take effect
		}
		out = append(out, op)
	}
	return out, nil
}

func domainCode(err error) string {
	var e *domain.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// choose draws an operation.
func (c *Clients) choose(r *mrand.Rand, n, which int) (Input, func(context.Context) (Output, error)) {
	s := c.Services[r.IntN(len(c.Services))]
	id := c.specs[which].spec.AttemptID
	m := clientMeta()
	in := Input{Which: which, Runner: n}
	state := func(a domain.Attempt, err error) (Output, error) { return Output{Seen: c.register(a)}, err }
	in.Op = []string{"submit", "submit", "submit", "offer", "offer", "offer", "offer", "start", "start", "start", "report", "complete", "cancel", "abort", "expire", "release", "requeue", "seal", "read", "read", "row"}[r.IntN(21)]
	switch in.Op {
	case "submit":
		return in, func(ctx context.Context) (Output, error) {
			spec := *c.specs[which].spec
			_, err := s.Submit(ctx, m, &spec, c.specs[which].raw)
			return Output{}, err
		}
	case "offer":
		return in, c.offer(s, id, n, which)
	case "start", "report", "complete", "release":
		return c.underLease(r, s, in, m)
	case "cancel", "abort":
		reason := domain.StopCancel
		if in.Op == "abort" {
			reason = domain.StopOperatorAbort
		}
		return in, func(ctx context.Context) (Output, error) {
			return state(s.Stop(ctx, m, id, reason, "no longer wanted"))
		}
	case "expire":
		in.Runner = r.IntN(c.Number)
		return in, func(ctx context.Context) (Output, error) {
			_, err := s.Tick(ctx, id, commands.TickOptions{EvictedRunner: c.runners[in.Runner]})
			return Output{}, err
		}
	case "requeue":
		return in, func(ctx context.Context) (Output, error) { return state(s.Requeue(ctx, m, id, "it hangs")) }
	case "seal":
		return in, func(ctx context.Context) (Output, error) {
			_, err := s.Seal(ctx, id, func(domain.Attempt, time.Time) (domain.Seal, error) {
				return domain.Seal{Sealed: domain.Sealed{State: "complete", URI: "s3://bucket/x", ManifestSHA256: sha("manifest")}}, nil
			})
			return Output{}, err
		}
	}
	row := in.Op == "row" && c.Row != nil
	in.Op = "read"
	return in, func(ctx context.Context) (Output, error) {
		if row {
			return c.Row(ctx, id)
		}
		return state(s.Attempt(ctx, id))
	}
}

func (c *Clients) offer(s *commands.Service, id domain.AttemptID, n, which int) func(context.Context) (Output, error) {
	token := rand.Text()
	return func(ctx context.Context) (Output, error) {
		if _, err := s.Attempt(ctx, id); err != nil { // whoever offers has read the attempt's row
			return Output{}, err
		}
		a, err := s.Offer(ctx, id, "", domain.Offer{RunnerID: c.runners[n], Pool: "default", TokenSHA256: sha(token)})
		if err == nil {
			c.mu.Lock()
			c.leases[which] = append(c.leases[which], held{commands.LeaseCall{LeaseID: a.Lease.ID, Epoch: a.Epoch, Token: token, RunnerID: c.runners[n]}, n})
			c.mu.Unlock()
		}
		return Output{Seen: c.register(a)}, err
	}
}

// underLease writes under one of the attempt's leases, mostly the latest.
func (c *Clients) underLease(r *mrand.Rand, s *commands.Service, in Input, m commands.Meta) (Input, func(context.Context) (Output, error)) {
	c.mu.Lock()
	leases := c.leases[in.Which]
	c.mu.Unlock()
	id := c.specs[in.Which].spec.AttemptID
	if len(leases) == 0 {
		in.Op = "read"
		return in, func(ctx context.Context) (Output, error) {
			a, err := s.Attempt(ctx, id)
			return Output{Seen: c.register(a)}, err
		}
	}
	l := leases[len(leases)-1]
	if r.IntN(4) == 0 {
		l = leases[r.IntN(len(leases))]
	}
	in.Runner, in.Epoch = l.runner, l.call.Epoch
	zero := 0
	claim := domain.Claim{Result: "succeeded", Launched: true, Code: &zero, FinishedAt: time.Now()}
	return in, func(ctx context.Context) (o Output, err error) {
		var a domain.Attempt
		switch in.Op {
		case "start":
			a, err = s.Start(ctx, m, l.call, "process")
		case "complete":
			a, err = s.Complete(ctx, m, l.call, claim, nil)
		case "report":
			res := s.Report(ctx, m, []commands.LeaseReport{{LeaseCall: l.call}})[0]
			a, err = res.Attempt, res.Err
		case "release":
			return o, s.Release(ctx, m, l.call, domain.ReleaseDraining)
		}
		return Output{Seen: c.register(a)}, err
	}
}

func clientMeta() commands.Meta {
	return meta(domain.NewID[domain.CommandID](uuid.New()), "client", domain.RoleOperator)
}

// register is an attempt as a read tells it.
func (c *Clients) register(a domain.Attempt) *Register {
	r := Register{Phase: a.Phase, Epoch: a.Epoch, Holder: -1}
	if a.Lease != nil {
		r.Holder = c.RunnerNumber(a.Lease.RunnerID)
	}
	if a.Stop != nil {
		r.Stop = a.Stop.Reason
	}
	if a.Outcome != nil {
		r.Outcome = string(a.Outcome.FailureCode)
		if a.Outcome.FailureCode == domain.CodeNone {
			r.Outcome = ok
		}
	}
	return &r
}

// RunnerNumber is which client a runner is; -2 if none.
func (c *Clients) RunnerNumber(id domain.RunnerID) int {
	for i, r := range c.runners {
		if r == id {
			return i
		}
	}
	return -2
}

// Flaky is a store some of whose appends fail, before or after they were stored.
type Flaky struct {
	eventstore.Store
	Every int // one of so many appends fails
}

// Append stores, or fails, or both. Others often come between the load that it
// was decided on and itself.
func (f Flaky) Append(ctx context.Context, a eventstore.Append) ([]eventstore.Event, error) {
	for range mrand.IntN(20) {
		runtime.Gosched()
	}
	switch mrand.IntN(2 * f.Every) {
	case 0:
		return nil, errBroke
	case 1:
		if _, err := f.Store.Append(ctx, a); err != nil {
			return nil, err
		}
		return nil, errBroke
	}
	return f.Store.Append(ctx, a)
}

// Read reads an attempt's row in memory.
func (t *Rows) Read(ctx context.Context, id domain.AttemptID) (Output, error) {
	v, err := t.Attempt(ctx, id)
	if err != nil {
		return Output{}, err
	}
	return RowRead(domain.Phase(v.Phase), v.Epoch, v.StopReason, v.FailureCode, v.Category != nil), nil
}

// RowRead is what a read of a row tells: all but the holder.
func RowRead(phase domain.Phase, epoch int64, stop, code *string, fixed bool) Output {
	r := &Register{Phase: phase, Epoch: epoch, Holder: AnyHolder}
	if stop != nil {
		r.Stop = domain.StopReason(*stop)
	}
	switch {
	case code != nil && *code != "":
		r.Outcome = *code
	case fixed:
		r.Outcome = ok
	}
	return Output{Seen: r}
}

// Blame tells the calls on the first attempt whose history cannot be, as far as
// the longest order that could be found for it.
func Blame(info porcupine.LinearizationInfo, history []porcupine.Operation) string {
	parts := info.PartialLinearizationsOperations()
	for _, part := range parts {
		longest := []porcupine.Operation{}
		for _, p := range part {
			if len(p) > len(longest) {
				longest = p
			}
		}
		if len(longest) == 0 {
			continue
		}
		which := longest[0].Input.(Input).Which
		placed := map[int64]bool{}
		var b strings.Builder
		fmt.Fprintf(&b, "attempt %d, in an order that works:\n", which)
		for _, op := range longest {
			placed[op.Call] = true
			fmt.Fprintf(&b, "  client %2d %s\n", op.ClientId, Describe(op.Input.(Input), op.Output.(Output)))
		}
		missing := 0
		fmt.Fprintln(&b, "and these do not fit any more:")
		for _, op := range history {
			if op.Input.(Input).Which == which && !placed[op.Call] && !op.Output.(Output).Unknown {
				missing++
				fmt.Fprintf(&b, "  client %2d %s\n", op.ClientId, Describe(op.Input.(Input), op.Output.(Output)))
			}
		}
		if missing > 0 {
			return b.String()
		}
	}
	return ""
}
