package callbacks

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// tally counts the tries of one endpoint over all terms of this process.
type tally struct {
	mu      sync.Mutex
	classes map[string]int64 // guarded by mu; "" are deliveries
	latency prometheus.Observer
}

func (t *tally) count(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.classes[a.class]++
	if a.class != ClassResult {
		t.latency.Observe(a.latency.Seconds())
	}
}

func (w *Worker) tallyOf(endpoint string) *tally {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measure()
	if w.tallies[endpoint] == nil {
		w.tallies[endpoint] = &tally{classes: map[string]int64{}, latency: w.latency.WithLabelValues(endpoint)}
	}
	return w.tallies[endpoint]
}

// measure makes what tries are counted in; w.mu is held.
func (w *Worker) measure() {
	if w.latency != nil {
		return
	}
	w.tallies = map[string]*tally{}
	w.latency = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "eps_callback_duration_seconds", Help: "Time of one call, from the lookup to the end of the answer.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	}, []string{"endpoint"})
}

var (
	triesDesc     = prometheus.NewDesc("eps_callback_tries_total", "Calls that this replica made, by endpoint and class of failure; delivered is none.", []string{"endpoint", "class"}, nil)
	pendingDesc   = prometheus.NewDesc("eps_callback_pending", "Callbacks that wait for their next try.", []string{"endpoint"}, nil)
	oldestDesc    = prometheus.NewDesc("eps_callback_oldest_pending_seconds", "Since the oldest pending callback was scheduled; 0 if none waits.", []string{"endpoint"}, nil)
	exhaustedDesc = prometheus.NewDesc("eps_callback_exhausted", "Callbacks that were given up and not replayed.", []string{"endpoint"}, nil)
	stoppedDesc   = prometheus.NewDesc("eps_callback_endpoint_stopped", "1 for an endpoint that is not called until an operator resumes it.", []string{"endpoint"}, nil)
	failuresDesc  = prometheus.NewDesc("eps_callback_failures_in_a_row", "Failures of an endpoint since its last success, at the replica that delivers.", []string{"endpoint"}, nil)
	secretDesc    = prometheus.NewDesc("eps_callback_secret_broken", "1 for an endpoint whose secret file cannot be used; the keys of before sign on.", []string{"endpoint"}, nil)
	unknownDesc   = prometheus.NewDesc("eps_callback_unknown_endpoint_total", "Results that name an endpoint which is not configured.", nil, nil)
	troubleDesc   = prometheus.NewDesc("eps_callback_scheduler_trouble", "1 while new results cannot be scheduled.", nil, nil)
	leadingDesc   = prometheus.NewDesc("eps_callback_leading", "1 at the replica that delivers callbacks.", nil, nil)
)

// Collector gives the worker's metrics. Labels are endpoints and classes only.
func (w *Worker) Collector() prometheus.Collector {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.measure()
	return collector{w}
}

type collector struct{ w *Worker }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{triesDesc, pendingDesc, oldestDesc, exhaustedDesc, stoppedDesc, failuresDesc, secretDesc, unknownDesc, troubleDesc, leadingDesc} {
		ch <- d
	}
	c.w.latency.Describe(ch)
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	c.w.mu.Lock()
	tallies := make(map[string]*tally, len(c.w.tallies))
	for name, t := range c.w.tallies {
		tallies[name] = t
	}
	c.w.mu.Unlock()
	for name, t := range tallies {
		t.collect(ch, name)
	}
	c.w.latency.Collect(ch)
	s, err := c.w.Status(ctx)
	known := err == nil
	if !known {
		s = c.w.local() // the database is away; what this process knows is still true
	}
	now, err := c.w.Reads.Now(ctx)
	for _, e := range s.Endpoints {
		gauge(failuresDesc, float64(e.FailuresInRow), e.Name)
		gauge(secretDesc, flag(e.SecretProblem != ""), e.Name)
		if !known {
			continue
		}
		gauge(pendingDesc, float64(e.Pending), e.Name)
		gauge(exhaustedDesc, float64(e.Exhausted), e.Name)
		gauge(stoppedDesc, flag(e.Stopped != ""), e.Name)
		switch {
		case e.Pending == 0:
			gauge(oldestDesc, 0, e.Name)
		case err == nil:
			gauge(oldestDesc, max(0, now.Sub(e.OldestAt).Seconds()), e.Name)
		}
	}
	ch <- prometheus.MustNewConstMetric(unknownDesc, prometheus.CounterValue, float64(s.Unknown))
	gauge(troubleDesc, flag(s.Trouble != ""))
	gauge(leadingDesc, flag(s.Leading))
}

func (t *tally) collect(ch chan<- prometheus.Metric, endpoint string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for class, n := range t.classes {
		if class == "" {
			class = "delivered"
		}
		ch <- prometheus.MustNewConstMetric(triesDesc, prometheus.CounterValue, float64(n), endpoint, class)
	}
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
