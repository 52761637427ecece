package plane

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/eventstore/postgres"
)

// health looks at the parts of a replica.
type health struct{ p *Plane }

const (
	feedStalled = 10 * time.Second
	feedBehind  = 30 * time.Second
)

// Checks: without the database nothing works, so the replica is not ready;
// without object storage logs wait on the runners and sealing waits, so it is
// degraded and goes on.
func (h health) Checks(ctx context.Context) map[string]wire.Check {
	out := map[string]wire.Check{"database": {Status: "ok"}, "feed": {Status: "ok"}, "object_storage": {Status: "ok"}}
	stats, err := h.p.Store.Stats(ctx)
	switch {
	case err != nil:
		out["database"] = wire.Check{Status: "failed", Detail: "the database does not answer"}
		out["feed"] = wire.Check{Status: "failed", Detail: "unknown without the database"}
	case stats.LastTickAge > feedStalled:
		out["feed"] = wire.Check{Status: "failed", Detail: "no sequencer has ticked for " + stats.LastTickAge.Round(time.Second).String()}
	case stats.FeedLagAge > feedBehind:
		out["feed"] = wire.Check{Status: "degraded", Detail: "the oldest event that is not fed waits for " + stats.FeedLagAge.Round(time.Second).String()}
	}
	if err := h.p.Bucket.Health(ctx); err != nil {
		out["object_storage"] = wire.Check{Status: "degraded", Detail: "logs wait on the runners and bundles are not sealed until it is back"}
	}
	if err == nil {
		h.checkDelivery(ctx, out)
	}
	if c := h.p.policy.check(); c.Status != "ok" {
		out["policy"] = c
	}
	if h.p.keys.others.Load() > 0 {
		out["fingerprint_keys"] = wire.Check{Status: "degraded", Detail: "another replica uses another fingerprint key; bundles of jobs with secrets are quarantined until all have the same --fingerprint-key-file"}
	}
	return out
}

// metrics are the API's and the replica's own.
func (p *Plane) metrics() *api.Metrics {
	m := api.NewMetrics()
	collectors := []prometheus.Collector{stateCollector{p}}
	if p.forwarder != nil {
		collectors = append(collectors, p.forwarder.Collector())
	}
	if p.callbacks != nil {
		collectors = append(collectors, p.callbacks.Collector())
	}
	for _, c := range collectors {
		if err := m.Register(c); err != nil {
			p.Log.Error("some metrics are missing", "error", err)
		}
	}
	return m
}

// stateCollector reads the state of the ledger when somebody asks for metrics.
type stateCollector struct{ p *Plane }

var (
	inState  = prometheus.NewDesc("eps_attempts_in_state", "Attempts that have not ended, by state.", []string{"state"}, nil)
	tickAge  = prometheus.NewDesc("eps_feed_last_tick_age_seconds", "Time since a sequencer last ticked.", nil, nil)
	feedLag  = prometheus.NewDesc("eps_feed_lag_events", "Committed events that are not in the feed yet.", nil, nil)
	feedAge  = prometheus.NewDesc("eps_feed_lag_seconds", "Age of the oldest event that is not in the feed yet.", nil, nil)
	xminAge  = prometheus.NewDesc("eps_database_xmin_age", "Transactions begun since the oldest one that still runs.", nil, nil)
	scrubbed = prometheus.NewDesc("eps_scrub_findings", "Stored objects that are not what the ledger says, as last looked at.", nil, nil)
	scrubObj = prometheus.NewDesc("eps_scrub_objects_total", "Stored objects that this replica has looked at.", nil, nil)
	scrubLen = prometheus.NewDesc("eps_scrub_bytes_total", "Bytes of stored objects that this replica has looked at.", nil, nil)
	scanned  = prometheus.NewDesc("eps_scans_total", "Bundles that this replica scanned for secrets, by result and reason.", []string{"result", "reason"}, nil)
	scanLen  = prometheus.NewDesc("eps_scan_bytes_total", "Bytes that this replica scanned for secrets.", nil, nil)
	leftOver = prometheus.NewDesc("eps_vault_tokens_left", "Vault tokens of attempts that no runner looks after and Vault has not ended yet.", nil, nil)
	unsealed = prometheus.NewDesc("eps_seal_waiting", "Attempts that could not be sealed at the last look.", nil, nil)
)

func (stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{inState, tickAge, feedLag, feedAge, xminAge, unsealed, scrubbed, scrubObj, scrubLen, scanned, scanLen, leftOver, projectionLag, projectionAge} {
		ch <- d
	}
}

func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	looked, read := c.p.scrubber.Counts()
	ch <- prometheus.MustNewConstMetric(scrubObj, prometheus.CounterValue, float64(looked))
	ch <- prometheus.MustNewConstMetric(scrubLen, prometheus.CounterValue, float64(read))
	if n, err := c.p.Reads.CountLeftTokens(ctx); err == nil {
		gauge(leftOver, float64(n))
	}
	if n, err := c.p.Reads.OpenScrubFindings(ctx); err == nil {
		gauge(scrubbed, float64(n))
	}
	verdicts, scannedBytes := c.p.sealer.Scans()
	for reason, n := range verdicts {
		result := "failed"
		if reason == "" {
			result = "passed"
		}
		ch <- prometheus.MustNewConstMetric(scanned, prometheus.CounterValue, float64(n), result, reason)
	}
	ch <- prometheus.MustNewConstMetric(scanLen, prometheus.CounterValue, float64(scannedBytes))
	gauge(unsealed, float64(c.p.sealer.Waiting()))
	if counts, err := c.p.Reads.StateCounts(ctx); err == nil {
		for state, n := range counts {
			gauge(inState, float64(n), state)
		}
	}
	c.collectDelivery(ctx, gauge)
	if s, err := c.p.Store.Stats(ctx); err == nil {
		gauge(tickAge, s.LastTickAge.Seconds())
		gauge(feedLag, float64(s.FeedLag))
		gauge(feedAge, s.FeedLagAge.Seconds())
		gauge(xminAge, float64(s.XminAge))
	}
}

// feed is the store's feed and the listener that knows when it grows.
type feed struct {
	*postgres.Store
	listener *postgres.Listener
}

func (f feed) WaitFeed(ctx context.Context, after eventstore.Cursor) error {
	return f.listener.WaitFeed(ctx, after)
}
