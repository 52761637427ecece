package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// FactsName is the output that holds the facts, as a JSON object by name.
const FactsName = "facts.json"

// fact is how one fact is read: by programs that every system has.
type fact struct {
	argv  []string
	parse func(string) (any, error)
}

var facts = map[string]fact{
	"os":       {[]string{"cat", "/etc/os-release"}, parseOSRelease},
	"kernel":   {[]string{"uname", "-s", "-r", "-m"}, parseKernel},
	"hostname": {[]string{"uname", "-n"}, parseHostname},
	"cpu":      {[]string{"cat", "/proc/cpuinfo"}, parseCPU},
	"memory":   {[]string{"cat", "/proc/meminfo"}, parseMemory},
	"disks":    {[]string{"df", "-P", "-k"}, parseDisks},
	"uptime":   {[]string{"cat", "/proc/uptime", "/proc/loadavg"}, parseUptime},
}

const factTimeout = 20 * time.Second

func (j *job) decideFacts() (func(context.Context) executor.Outcome, error) {
	grant, verdict := j.bundle.FactGrant(j.input)
	if err := j.rec.decided("facts "+strings.Join(j.input.Use.Facts, " "), verdict); err != nil {
		return nil, err
	}
	return func(ctx context.Context) executor.Outcome { return j.collect(ctx, grant.Facts) }, nil
}

func (j *job) collect(ctx context.Context, names []string) executor.Outcome {
	got := map[string]any{}
	j.report.Missing = map[string]string{}
	for i, name := range names {
		j.rec.keep(j.rec.control.Progress("collecting", int64(i), int64(len(names)), name))
		value, err := j.fact(ctx, name)
		var lost *sshaccess.LostError
		if errors.As(err, &lost) || ctx.Err() != nil {
			return ofError(ctx, err)
		}
		if err != nil {
			j.report.Missing[name] = err.Error()
			continue
		}
		got[name] = value
	}
	if len(got) == 0 {
		j.finish(failed, map[string]any{"missing": j.report.Missing})
		return outcome(executor.TaskFailed, categoryUnknown, "none of the facts could be read")
	}
	if err := j.writeJSON(FactsName, got); err != nil {
		return ofError(ctx, err)
	}
	j.announce(FactsName, "ssh_facts", "application/json")
	result, category := passed, categorySuccess
	if len(j.report.Missing) > 0 {
		result, category = failed, categoryUnknown
	}
	j.finish(result, map[string]any{"facts": len(got), "missing": j.report.Missing})
	return outcome(executor.Succeeded, category, "%d of %d facts were read", len(got), len(names))
}

func (j *job) fact(ctx context.Context, name string) (any, error) {
	f, known := facts[name]
	if !known {
		return nil, errors.New("this executor does not know it")
	}
	r, err := j.client.Run(ctx, f.argv, "", sshaccess.Limits{Run: factTimeout, Output: 1 << 20})
	switch {
	case err != nil:
		return nil, err
	case r.Stopped == sshaccess.StopLost:
		return nil, &sshaccess.LostError{Hop: j.report.Host, Cause: errors.New("while a fact was read")}
	case r.Stopped != "":
		return nil, failedf(categoryUnknown, "reading a fact was %s", stopped(r))
	case r.Exit != 0 && len(r.Stdout) == 0:
		return nil, fmt.Errorf("%s ended with status %d", f.argv[0], r.Exit)
	}
	// df reports what it could look at, and a status for what it could not.
	return f.parse(string(r.Stdout))
}

func parseOSRelease(text string) (any, error) {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		switch key {
		case "ID", "NAME", "VERSION_ID", "VERSION_CODENAME", "PRETTY_NAME", "ID_LIKE":
			if unquoted, err := strconv.Unquote(value); err == nil {
				value = unquoted
			}
			out[strings.ToLower(key)] = clip(strings.Trim(value, `'`), 200)
		}
	}
	if out["id"] == "" {
		return nil, errors.New("os-release names no ID")
	}
	return out, nil
}

func parseKernel(text string) (any, error) {
	fields := strings.Fields(text)
	if len(fields) < 3 {
		return nil, errors.New("uname said too little")
	}
	return map[string]string{"name": clip(fields[0], 200), "release": clip(fields[1], 200), "machine": clip(fields[2], 200)}, nil
}

func parseHostname(text string) (any, error) {
	name := strings.TrimSpace(text)
	if name == "" {
		return nil, errors.New("uname said nothing")
	}
	return clip(name, 255), nil
}

func parseCPU(text string) (any, error) {
	count, model := 0, ""
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			count++
		case "model name", "cpu model", "Processor":
			model = clip(strings.TrimSpace(value), 200)
		}
	}
	if count == 0 {
		return nil, errors.New("cpuinfo names no processor")
	}
	return map[string]any{"count": count, "model": model}, nil
}

// memoryNames are the lines of meminfo that are told, and their names.
var memoryNames = map[string]string{"MemTotal": "total_bytes", "MemAvailable": "available_bytes",
	"SwapTotal": "swap_total_bytes", "SwapFree": "swap_free_bytes"}

func parseMemory(text string) (any, error) {
	out := map[string]int64{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		name, wanted := memoryNames[key]
		fields := strings.Fields(value)
		if !wanted || len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 53); err == nil {
			out[name] = n * 1024
		}
	}
	if _, ok := out["total_bytes"]; !ok {
		return nil, errors.New("meminfo names no MemTotal")
	}
	return out, nil
}

// disk is one line of df.
type disk struct {
	Filesystem string `json:"filesystem"`
	Mount      string `json:"mount"`
	Size       int64  `json:"size_bytes"`
	Used       int64  `json:"used_bytes"`
	Available  int64  `json:"available_bytes"`
}

func parseDisks(text string) (any, error) {
	var out []disk
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Scan() // the heading
	for lines.Scan() && len(out) < 1000 {
		// A name may hold blanks; the numbers are those before the percentage.
		head, mount, ok := strings.Cut(lines.Text(), "% ")
		fields := strings.Fields(head)
		if !ok || len(fields) < 5 {
			continue
		}
		at := len(fields) - 4
		d := disk{Filesystem: clip(strings.Join(fields[:at], " "), 500), Mount: clip(strings.TrimSpace(mount), 500)}
		whole := true
		for i, to := range []*int64{&d.Size, &d.Used, &d.Available} {
			n, err := strconv.ParseInt(fields[at+i], 10, 53)
			*to, whole = n*1024, whole && err == nil
		}
		if whole {
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("df lists no file system")
	}
	return out, nil
}

func parseUptime(text string) (any, error) {
	fields := strings.Fields(text)
	if len(fields) < 5 {
		return nil, errors.New("uptime and loadavg said too little")
	}
	up, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return nil, errors.New("uptime is no number")
	}
	load := make([]float64, 3)
	for i := range load {
		if load[i], err = strconv.ParseFloat(fields[2+i], 64); err != nil {
			return nil, errors.New("loadavg is no number")
		}
	}
	return map[string]any{"seconds": up, "load": load}, nil
}
