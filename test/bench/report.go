package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// figure is one thing measured, beside its limit or peer where it has one. The
// values are medians over the rounds; the ratio is of each pair.
type figure struct {
	Part     string  `json:"part"`
	Name     string  `json:"name"`
	Fsync    string  `json:"fsync"`
	Unit     string  `json:"unit"`
	Ours     float64 `json:"ours"`
	PeerName string  `json:"peer_name,omitempty"`
	Peer     float64 `json:"peer,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	RatioMin float64 `json:"ratio_min,omitempty"`
	RatioMax float64 `json:"ratio_max,omitempty"`
	Rounds   int     `json:"rounds"`
	Target   string  `json:"target,omitempty"` // such as "≥ 0.7"; with a unit it is of ours
	Reached  *bool   `json:"reached,omitempty"`

	atLeast, atMost float64 // of the ratio; 0: no such target
	above, below    float64 // of ours; 0: no such target
	ours, peers     []float64
}

func (f *figure) finish() {
	f.Rounds = len(f.ours)
	var ratios []float64
	for i := range f.peers {
		if f.peers[i] > 0 {
			ratios = append(ratios, f.ours[i]/f.peers[i])
		}
	}
	f.Ours, f.Peer = median(slices.Clone(f.ours)), median(slices.Clone(f.peers))
	if len(ratios) > 0 {
		f.RatioMin, f.RatioMax, f.Ratio = slices.Min(ratios), slices.Max(ratios), median(ratios)
	}
	var ok bool
	switch {
	case f.atLeast > 0:
		f.Target, ok = fmt.Sprintf("≥ %g", f.atLeast), f.Ratio >= f.atLeast
	case f.atMost > 0:
		f.Target, ok = fmt.Sprintf("≤ %g", f.atMost), f.Ratio <= f.atMost
	case f.above > 0:
		f.Target, ok = fmt.Sprintf("≥ %g %s", f.above, f.Unit), f.Ours >= f.above
	case f.below > 0:
		f.Target, ok = fmt.Sprintf("< %g %s", f.below, f.Unit), f.Ours < f.below
	default:
		return
	}
	f.Reached = &ok
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// cells are the figure's columns: what, ours, peer, ratio, spread, target.
func (f *figure) cells() []string {
	out := []string{f.Name, number(f.Ours) + " " + f.Unit, "", "", "", ""}
	if f.PeerName != "" {
		out[2] = number(f.Peer) + " " + f.PeerName
		out[3] = fmt.Sprintf("%.2f", f.Ratio)
		out[4] = fmt.Sprintf("%.2f–%.2f", f.RatioMin, f.RatioMax)
	}
	if f.Target != "" {
		out[5] = f.Target
		if !*f.Reached {
			out[5] += " not reached"
		}
	}
	return out
}

func (f *figure) line() string {
	var parts []string
	for _, c := range f.cells() {
		if c != "" {
			parts = append(parts, c)
		}
	}
	return strings.Join(parts, " | ")
}

// report is a whole run.
type report struct {
	Go       string                       `json:"go"`
	CPUs     int                          `json:"cpus"`
	Postgres string                       `json:"postgres"`
	Settings map[string]map[string]string `json:"settings"` // by "fsync on" and "fsync off"
	Tiny     bool                         `json:"tiny,omitempty"`
	Figures  []figure                     `json:"figures"`
}

func newReport(s size) *report {
	return &report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Settings: map[string]map[string]string{}, Tiny: s.tiny}
}

// about notes what server the figures are of.
func (r *report) about(ctx context.Context, pool *pgxpool.Pool, fsync bool) error {
	if err := pool.QueryRow(ctx, "SELECT current_setting('server_version')").Scan(&r.Postgres); err != nil {
		return fmt.Errorf("ask for the server's version: %w", err)
	}
	rows, err := pool.Query(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('fsync', 'full_page_writes',
		'synchronous_commit', 'shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'wal_level', 'wal_sync_method', 'max_connections', 'jit')`)
	if err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	set := map[string]string{}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { set[name] = value; return nil }); err != nil {
		return fmt.Errorf("ask for the server's settings: %w", err)
	}
	r.Settings["fsync "+onOff(fsync)] = set
	return nil
}

func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

func (r *report) table(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nPostgreSQL %s, %s, %d CPUs. Medians; the ratio is of each pair of measurements, with its least and largest.\n", r.Postgres, r.Go, r.CPUs)
	if r.Tiny {
		b.WriteString("A tiny run: its figures say nothing.\n")
	}
	for name, set := range r.Settings {
		var kv []string
		for k, v := range set {
			kv = append(kv, k+"="+v)
		}
		slices.Sort(kv)
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(kv, " "))
	}
	b.WriteString("\n")
	var columns bytes.Buffer
	columns.WriteString("part\tfsync\twhat\tours\tbeside\tratio\tspread\ttarget\n")
	for _, f := range r.Figures {
		fmt.Fprintf(&columns, "%s\t%s\t%s\n", f.Part, f.Fsync, strings.Join(f.cells(), "\t"))
	}
	aligned := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if _, err := aligned.Write(columns.Bytes()); err != nil {
		return err
	}
	if err := aligned.Flush(); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}
