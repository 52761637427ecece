package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is what GET /metrics shows. Names begin with eps_; labels are route
// patterns, methods, statuses: never an id, so that their number stays small.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	held     prometheus.Gauge
}

// NewMetrics returns the API's own metrics and those of the process.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "eps_http_requests_total", Help: "HTTP requests by route pattern, method and status; 499 is a caller that went away.",
		}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "eps_http_request_duration_seconds", Help: "Time from a request's header to the end of its answer, held time included.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "eps_http_held_requests", Help: "Requests that wait for news: held commands, results, followed logs and events.",
		}),
	}
	m.registry.MustRegister(m.requests, m.duration, m.held,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// Register adds collectors of other parts. An error says which name is taken.
func (m *Metrics) Register(more ...prometheus.Collector) error {
	for _, c := range more {
		if err := m.registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// Gatherer gives the values to programs and tests.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

func (m *Metrics) observe(route, method string, status int, d time.Duration) {
	switch method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodHead, http.MethodOptions, http.MethodPatch:
	default:
		method = "other" // a caller may invent methods
	}
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(route, method).Observe(d.Seconds())
}
