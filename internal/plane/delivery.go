package plane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/callbacks"
	"github.com/platform-core/execution-plane-service/forwarder"
	"github.com/platform-core/execution-plane-service/projections/catchup"
)

// Delivery is where facts and results go. The zero value sends nothing anywhere:
// GET /v1/events and GET /v1/results serve the same.
type Delivery struct {
	Kafka     *forwarder.Kafka // nil: nothing is published
	Topics    forwarder.Topics
	Source    string               // ce_source
	Endpoints *callbacks.Endpoints // nil: no callbacks
	// Envelope takes the way through Watermill's forwarder component.
	Envelope bool
	Version  string // of the service, as receivers see it
}

// forwarderConfig is what publishing needs of a replica.
func (p *Plane) forwarderConfig() forwarder.Config {
	return forwarder.Config{
		Feed: feed{p.Store, p.feed}, History: p.Store, Leases: p.Store, Checkpoints: p.Reads, Commands: p.Commands, Parked: p.Reads,
		Holder: p.holder, Kafka: *p.Delivery.Kafka, Topics: p.Delivery.Topics, Source: p.Delivery.Source, Envelope: p.Delivery.Envelope, Log: p.Log,
	}
}

// assembleDelivery makes what reads the feed and sends it on.
func (p *Plane) assembleDelivery() error {
	p.results = catchup.New(p.Pool, catchup.Results(), catchup.Options{Growth: p.feed, Log: p.Log})
	if p.Delivery.Kafka != nil {
		f, err := forwarder.New(p.forwarderConfig())
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		p.forwarder = f
	}
	if p.Delivery.Endpoints != nil {
		p.callbacks = &callbacks.Worker{
			Endpoints: p.Delivery.Endpoints, Commands: p.Commands, Reads: p.Reads, Leases: p.Store, Holder: p.holder, Version: p.Delivery.Version,
			Woken: p.results.Woken, Log: p.Log,
		}
	}
	return nil
}

// beginCallbacks says, at the first start with endpoints, that results are delivered
// from now on: those of before would come as a flood. It happens before the first
// JobSpec can name an endpoint; history is delivered by a replay.
func (p *Plane) beginCallbacks(ctx context.Context) error {
	if p.callbacks == nil {
		return nil
	}
	end, err := p.Store.FeedEnd(ctx)
	if err == nil {
		err = p.Reads.BeginCheckpoint(ctx, callbacks.CheckpointName, end)
	}
	if err != nil {
		return fmt.Errorf("begin with callbacks: %w", err)
	}
	return nil
}

// startDelivery runs what this replica's modules name.
func (p *Plane) startDelivery(start func(string, func(context.Context) error)) {
	start("results", p.results.Run)
	if p.forwarder != nil && slices.Contains(p.Modules, ModuleForwarder) {
		start("forwarder", p.forwarder.Run)
	}
	if p.callbacks != nil && slices.Contains(p.Modules, ModuleCallbacks) {
		start("callbacks", p.callbacks.Run)
	}
}

// deliveryAPI tells the API of it; nil interfaces stay nil.
func (p *Plane) deliveryAPI(c *api.Config) {
	c.WaitResult = p.results.Wait
	if p.Delivery.Endpoints != nil {
		c.Endpoints, c.Deliveries = p.Delivery.Endpoints, p.callbacks
	}
	if p.forwarder != nil {
		c.Forwarder = publishing{p.forwarder}
	}
}

// publishing says how it goes, from memory.
type publishing struct{ f *forwarder.Forwarder }

func (p publishing) Status(context.Context) (api.ForwarderStatus, error) {
	s := p.f.Local()
	trouble := s.Trouble
	if trouble == "" {
		trouble = strings.Join(s.Missing, "; ")
	}
	return api.ForwarderStatus{Leading: s.Leader, Trouble: trouble, Topics: p.f.Topics.All()}, nil
}

// How late delivery may be before health says so.
const (
	publishedLate = time.Minute
	resultsLate   = 30 * time.Second
)

// checkDelivery adds what is late or in somebody's way. Nothing of it makes a
// replica unready: facts and results wait in the ledger.
func (h health) checkDelivery(ctx context.Context, out map[string]wire.Check) {
	degraded := func(name, detail string) { out[name] = wire.Check{Status: "degraded", Detail: detail} }
	out["results"] = wire.Check{Status: "ok"}
	if s, err := h.p.results.Status(ctx); err == nil {
		switch {
		case s.LastError != "":
			degraded("results", "results do not go on after "+s.Checkpoint.String()+"; the log of this replica says why")
		case s.Lag > resultsLate:
			degraded("results", "the oldest event that is not looked at for results waits for "+s.Lag.Round(time.Second).String())
		}
	}
	if h.p.forwarder != nil {
		out["kafka"] = wire.Check{Status: "ok"}
		if s, err := h.p.forwarder.Status(ctx); err == nil {
			switch {
			case len(s.Missing) > 0:
				degraded("kafka", "topics are missing; see execution-plane forwarder status")
			case s.LagAge > publishedLate:
				degraded("kafka", "the oldest event that is not published waits for "+s.LagAge.Round(time.Second).String()+"; see execution-plane forwarder status")
			case len(s.Parked) > 0:
				degraded("kafka", fmt.Sprintf("the broker refuses %d keys; see execution-plane forwarder status", len(s.Parked)))
			}
		}
	}
	if h.p.callbacks != nil {
		out["callbacks"] = wire.Check{Status: "ok"}
		if s, err := h.p.callbacks.Status(ctx); err == nil {
			if detail := callbackTrouble(s); detail != "" {
				degraded("callbacks", detail+"; see execution-plane callbacks endpoints")
			}
		}
	}
}

// callbackTrouble is what somebody has to do something about; "" for nothing.
func callbackTrouble(s callbacks.Status) string {
	var stopped, away, unsigned, parts []string
	for _, e := range s.Endpoints {
		if e.Stopped != "" || e.Exhausted > 0 {
			stopped = append(stopped, e.Name)
		}
		if !e.Configured && e.Pending > 0 {
			away = append(away, e.Name)
		}
		if e.SecretProblem != "" {
			unsigned = append(unsigned, e.Name)
		}
	}
	add := func(text string, names []string) {
		if len(names) > 0 {
			parts = append(parts, text+": "+strings.Join(names, ", "))
		}
	}
	if s.Trouble != "" {
		parts = append(parts, "new results get no callbacks")
	}
	add("endpoints are stopped or have callbacks that were given up", stopped)
	add("callbacks wait for endpoints that are not configured", away)
	add("secret files cannot be read again", unsigned)
	return strings.Join(parts, "; ")
}

var (
	projectionLag = prometheus.NewDesc("eps_projection_lag_events", "Events of the feed that a catch-up projection has not come to yet.", []string{"projection"}, nil)
	projectionAge = prometheus.NewDesc("eps_projection_lag_seconds", "Age of the oldest of them.", []string{"projection"}, nil)
)

// collectDelivery adds the catch-up projections to the replica's metrics.
func (c stateCollector) collectDelivery(ctx context.Context, gauge func(*prometheus.Desc, float64, ...string)) {
	if s, err := c.p.results.Status(ctx); err == nil {
		gauge(projectionLag, float64(s.LagEvents), s.Projection)
		gauge(projectionAge, s.Lag.Seconds(), s.Projection)
	}
}
