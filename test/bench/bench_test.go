package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every part runs, small and without waiting for the disk, and says something: the
// bench is not left to rot. What the figures are is not looked at.
func TestEveryPartRuns(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := measure(ctx, parts(), []bool{false}, smoke(), func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts() {
		i := slices.IndexFunc(r.Figures, func(f figure) bool { return f.Part == p.name })
		if i < 0 {
			t.Errorf("%s has no figure", p.name)
		}
	}
	for _, f := range r.Figures {
		if f.Part != "held" && f.Ours <= 0 || f.PeerName != "" && f.Peer <= 0 {
			t.Errorf("%s, %s: %s", f.Part, f.Name, f.line())
		}
	}
	var out bytes.Buffer
	if err := r.json(&out); err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || len(back.Figures) != len(r.Figures) || back.Postgres == "" || !back.Tiny {
		t.Errorf("as JSON it is %s, %v", out.String(), err)
	}
	out.Reset()
	if err := r.table(&out); err != nil || strings.Count(out.String(), "\n") < len(r.Figures) || !strings.Contains(out.String(), "tiny") {
		t.Errorf("as a table it is %s, %v", out.String(), err)
	}
}

func TestFiguresAreOfPairs(t *testing.T) {
	f := figure{Name: "x", Unit: "1/s", PeerName: "y", atLeast: 0.7, ours: []float64{1, 8, 3}, peers: []float64{2, 8, 6}}
	f.finish()
	if f.Ours != 3 || f.Peer != 6 || f.Ratio != 0.5 || f.RatioMin != 0.5 || f.RatioMax != 1 || f.Rounds != 3 || *f.Reached || f.Target != "≥ 0.7" {
		t.Errorf("%+v", f)
	}
	f = figure{atMost: 4, ours: []float64{8}, peers: []float64{2}}
	f.finish()
	if !*f.Reached || f.Target != "≤ 4" {
		t.Errorf("%+v", f)
	}
	if f.ours[0] != 8 {
		t.Error("finish changes what was measured")
	}
	for p, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 4} {
		if got := percentile([]float64{4, 1, 3, 2}, p); got != want {
			t.Errorf("percentile %g is %g, want %g", p, got, want)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-o", "xml"}, {"-part", "append,nothing"}, {"-fsync", "maybe"}, {"append"}, {"-none"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	got, err := pick("group,append")
	if err != nil || len(got) != 2 || got[0].name != "group" || got[1].name != "append" {
		t.Errorf("picked %v, %v", got, err)
	}
	if err := newReport(smoke()).table(io.Discard); err != nil {
		t.Error(err)
	}
}
