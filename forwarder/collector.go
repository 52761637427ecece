package forwarder

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTime bounds what one scrape asks of the database.
const scrapeTime = 2 * time.Second

// Collector gives Status as metrics.
func (f *Forwarder) Collector() prometheus.Collector { return collector{f} }

type collector struct{ f *Forwarder }

var (
	leaderDesc    = describe("eps_forwarder_leader", "1 on the replica that publishes.")
	troubleDesc   = describe("eps_forwarder_trouble", "1 while something keeps the leader from publishing.")
	lagDesc       = describe("eps_forwarder_lag_events", "Events of the feed beyond the checkpoint.")
	lagAgeDesc    = describe("eps_forwarder_lag_seconds", "Age of the oldest event beyond the checkpoint.")
	publishedDesc = describe("eps_forwarder_published_total", "Events acknowledged by the brokers, by this replica.", "topic")
	refusedDesc   = describe("eps_forwarder_refused_total", "Events that the brokers refused for good, met by this replica.", "topic")
	replayedDesc  = describe("eps_forwarder_replayed_total", "Events published again by a replay of this replica.")
	retriesDesc   = describe("eps_forwarder_retries_total", "Tries that failed and were or will be repeated.")
	parkedDesc    = describe("eps_forwarder_parked_keys", "Keys whose events are passed over.", "topic")
	parkedAgeDesc = describe("eps_forwarder_parked_oldest_seconds", "Age of the oldest parked key.", "topic")
	missingDesc   = describe("eps_forwarder_missing_topics", "Topics that do not exist and that the leader may not make.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{leaderDesc, troubleDesc, lagDesc, lagAgeDesc, publishedDesc, refusedDesc, replayedDesc, retriesDesc, parkedDesc, parkedAgeDesc, missingDesc} {
		ch <- d
	}
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	s, err := c.f.Status(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge(leaderDesc, one(s.Leader))
	gauge(troubleDesc, one(s.Trouble != ""))
	gauge(missingDesc, float64(len(s.Missing)))
	counter(replayedDesc, s.Replayed)
	counter(retriesDesc, s.Retries)
	for _, topic := range c.f.Topics.All() {
		counter(publishedDesc, s.Published[topic], topic)
		counter(refusedDesc, s.Refused[topic], topic)
	}
	if err != nil {
		return // without the database the place is not known, and left out
	}
	gauge(lagDesc, float64(s.Lag))
	gauge(lagAgeDesc, s.LagAge.Seconds())
	keys, age := map[string]float64{}, map[string]float64{}
	for _, p := range s.Parked {
		keys[p.Topic]++
		age[p.Topic] = max(age[p.Topic], time.Since(p.ParkedAt).Seconds())
	}
	for _, topic := range c.f.Topics.All() {
		keys[topic] += 0
	}
	for topic := range keys {
		gauge(parkedDesc, keys[topic], topic)
		gauge(parkedAgeDesc, age[topic], topic)
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
