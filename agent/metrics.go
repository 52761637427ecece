package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Labels of the proof of an ending (eps_runner_stops_total).
const (
	proofReaped      = "reaped"
	proofUnconfirmed = "unconfirmed"
	proofTooLate     = "too_late"     // it had ended by itself
	proofNothingRan  = "not_launched" // there was nothing to end
)

// meters count what an agent did; what it has at the moment is read when asked.
type meters struct {
	read, sent, dropped prometheus.Counter
	failed              *prometheus.CounterVec
	stops               *prometheus.CounterVec
}

func newMeters() *meters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &meters{
		read:    counter("eps_runner_log_read_bytes_total", "Bytes of log that executors wrote."),
		sent:    counter("eps_runner_log_sent_bytes_total", "Bytes of log, as frames, that the service took."),
		dropped: counter("eps_runner_log_dropped_bytes_total", "Bytes of log left out because of a quota, or of a disk that failed."),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eps_runner_upload_failures_total", Help: "Uploads that were not taken and are repeated or given up, by what was sent."}, []string{"kind"}),
		stops: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eps_runner_stops_total", Help: "Jobs that were told to end, by why and by what was proved."}, []string{"reason", "proof"}),
	}
}

var (
	descSlots      = prometheus.NewDesc("eps_runner_slots", "Attempts that may run at a time.", nil, nil)
	descRunning    = prometheus.NewDesc("eps_runner_attempts", "Attempts that hold a slot.", nil, nil)
	descSending    = prometheus.NewDesc("eps_runner_attempts_sending", "Attempts that have ended and whose bytes are still sent.", nil, nil)
	descSpool      = prometheus.NewDesc("eps_runner_spool_bytes", "Bytes of log on disk.", nil, nil)
	descSpoolLimit = prometheus.NewDesc("eps_runner_spool_limit_bytes", "Bytes of log on disk from which on no new attempt is taken.", nil, nil)
	descReport     = prometheus.NewDesc("eps_runner_report_age_seconds", "Time since the last report that was acknowledged was sent.", nil, nil)
	descLease      = prometheus.NewDesc("eps_runner_lease_left_seconds", "Least time until the lease of a running job is over; absent where none runs.", nil, nil)
)

// Describe and Collect make the agent a prometheus.Collector.
func (a *Agent) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(a, ch) }

// Collect reads what the agent has at this moment.
func (a *Agent) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	now := a.config.bootNow()
	a.mu.Lock()
	slots, reported := a.slots, a.reported
	a.mu.Unlock()
	all, busy := a.count(), a.busy()
	gauge(descSlots, float64(slots))
	gauge(descRunning, float64(busy))
	gauge(descSending, float64(max(0, all-busy)))
	gauge(descSpool, float64(a.spooled.bytes.Load()))
	gauge(descSpoolLimit, float64(a.spooled.limit))
	if reported != 0 {
		gauge(descReport, now.Sub(reported).Seconds())
	}
	if left, ok := a.leaseLeft(now); ok {
		gauge(descLease, left.Seconds())
	}
	for _, c := range []prometheus.Collector{a.meters.read, a.meters.sent, a.meters.dropped, a.meters.failed, a.meters.stops} {
		c.Collect(ch)
	}
}

// leaseLeft is the least time that the leases of running jobs still live. A
// lease outlives its fence by the stop budget.
func (a *Agent) leaseLeft(now isolation.BootTime) (left time.Duration, ok bool) {
	for _, at := range a.list() {
		at.mu.Lock()
		if at.held && !at.fenceOff && at.loss == lossNone {
			if d := at.fenceAt.Sub(now) + at.stopBudget(); !ok || d < left {
				left, ok = d, true
			}
		}
		at.mu.Unlock()
	}
	return left, ok
}

// MetricsHandler gives the agent's metrics in Prometheus' text format.
func (a *Agent) MetricsHandler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(a, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// serveMetrics listens where Config.Metrics says. stop ends it.
func (a *Agent) serveMetrics() (stop func(), err error) {
	if a.config.Metrics == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", a.config.Metrics)
	if err != nil {
		return nil, fmt.Errorf("serve the runner's metrics: %w; choose another address with --metrics", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", a.MetricsHandler())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(a.config.Log.Handler(), slog.LevelWarn)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.config.Log.Error("the metrics are not served any more", "error", err)
		}
	}()
	a.config.Log.Info("metrics are served", "address", l.Addr().String())
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		a.config.Log.Warn("other machines can read the metrics, without a token; 127.0.0.1 keeps them here")
	}
	return func() {
		_ = s.Close()
		<-done
	}, nil
}

// countStop notes how a job ended that somebody wanted to end.
func (at *attempt) countStop(e ending) {
	at.mu.Lock()
	reason := ""
	switch {
	case at.stop != nil:
		reason = string(at.stop.Reason)
	case at.broken != nil:
		reason = "storage"
	case at.loss != lossNone:
		reason = "lease_" + at.loss.String()
	case at.drained:
		reason = "agent_leaves"
	}
	at.mu.Unlock()
	if reason == "" {
		return
	}
	proof := proofUnconfirmed
	switch {
	case !e.launched:
		proof = proofNothingRan
	case e.own:
		proof = proofTooLate
	case e.reaped != nil && e.reaped.Confirmed && e.reaped.Survivors == 0:
		proof = proofReaped
	}
	at.agent.meters.stops.WithLabelValues(reason, proof).Inc()
}
