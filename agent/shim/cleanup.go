package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// Cleaned says what was found of one attempt.
type Cleaned struct {
	// Dir is the attempt's folder. It is gone unless the agent keeps files of
	// its own there.
	Dir string
	// ShimAlive: its shim still ran, and ended the tree itself or was killed.
	ShimAlive bool
	// Killed is how many processes were killed here; Left is how many of them
	// would not go. With Left > 0 the folder stays.
	Killed, Left int
}

// cleanMargin is added to a shim's own stop budget before it is killed, and
// bounds the wait for killed processes to go.
const cleanMargin = 5 * time.Second

// CleanUp ends what a crashed agent left behind below stateDir, which holds one
// folder per attempt, and removes the attempts' folders. Call it before the
// first Start, and hold a lock on stateDir: a running agent's attempts look
// just like these.
//
// A shim whose agent died ends its tree by itself, so CleanUp first waits for
// it. Processes are named by pid and start time, or by the attempt's folder in
// their environment; never by a bare pid.
func CleanUp(ctx context.Context, stateDir string) ([]Cleaned, error) {
	entries, err := os.ReadDir(stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("clean up after a crash: %w", err)
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		out  []Cleaned
		errs []error
	)
	for _, e := range entries {
		dir := filepath.Join(stateDir, e.Name())
		if !e.IsDir() || !used(dir) {
			continue
		}
		wg.Go(func() {
			c, err := cleanOne(ctx, dir)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, c)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b Cleaned) int { return strings.Compare(a.Dir, b.Dir) })
	return out, errors.Join(errs...)
}

// used says whether a folder was laid out by Start.
func used(dir string) bool {
	f := Layout(dir)
	for _, p := range []string{f.Record, f.Work, f.Output, f.Tmp} {
		if _, err := os.Lstat(p); err == nil {
			return true
		}
	}
	return false
}

func cleanOne(ctx context.Context, dir string) (Cleaned, error) {
	c := Cleaned{Dir: dir}
	rec, err := readRecord(Layout(dir).Record)
	if boot, berr := isolation.BootID(); err == nil && berr == nil && rec.BootID == boot && rec.Shim.Alive() {
		c.ShimAlive = true
		if err := awaitEnd(ctx, rec.Shim, rec.StopBudget+cleanMargin); err != nil {
			return c, fmt.Errorf("clean up %s: %w", dir, err)
		}
	}
	c.Killed, c.Left = endLeftovers(dir)
	if c.Left > 0 {
		return c, fmt.Errorf("clean up %s: %d processes do not end; look at them with `ps`, the folder stays", dir, c.Left)
	}
	if err := Layout(dir).remove(dir); err != nil {
		return c, fmt.Errorf("clean up %s: %w", dir, err)
	}
	return c, nil
}

// awaitEnd waits until the process ends, at most d.
func awaitEnd(ctx context.Context, id isolation.Identity, d time.Duration) error {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// endLeftovers kills every process that can be shown to belong to the attempt
// of dir, and says how many were killed and how many are left.
func endLeftovers(dir string) (killed, left int) {
	rec, err := readRecord(Layout(dir).Record)
	boot, berr := isolation.BootID()
	named := rec
	if err != nil || berr != nil || rec.BootID != boot {
		// Pids of another boot name nobody. The folder's name still does.
		rec = record{}
	}
	cg := ownedCgroup(rec.Cgroup)
	end := time.Now().Add(cleanMargin)
	for {
		if cg != nil {
			_ = cg.Kill() // gone already is the usual answer
		}
		found := belonging(rec, dir)
		if len(found) == 0 {
			if cg != nil {
				_ = cg.Remove()
			}
			forget(named, dir)
			return killed, 0
		}
		if time.Now().After(end) {
			return killed, len(found)
		}
		killed = max(killed, isolation.KillBelow(func() []isolation.Stat { return belonging(rec, dir) }))
		time.Sleep(10 * time.Millisecond)
	}
}

// forget lets an engine remove what it keeps of the attempt's container, which may
// outlive a boot.
func forget(rec record, dir string) {
	if !strings.HasPrefix(rec.Container, cgroupPrefix) {
		return
	}
	engine, err := isolation.FindEngine(context.Background(), rec.Engine)
	if err != nil {
		return // it is not here any more, and keeps nothing then
	}
	removeContainer(&isolation.Box{Engine: engine, Dir: Layout(dir).Engine, ID: rec.Container})
}

// ownedCgroup trusts no path of a record that does not look like ours.
func ownedCgroup(path string) *isolation.Cgroup {
	if !strings.HasPrefix(filepath.Base(path), cgroupPrefix) || !filepath.IsAbs(path) {
		return nil
	}
	return &isolation.Cgroup{Path: path}
}

// belonging lists the living processes of an attempt: the recorded ones by
// identity, those that name its folder, and all below them.
func belonging(rec record, dir string) []isolation.Stat {
	var out []isolation.Stat
	seen := map[int]bool{os.Getpid(): true}
	add := func(s isolation.Stat) {
		if !seen[s.Pid] && !s.Dead() {
			seen[s.Pid] = true
			out = append(out, s)
		}
	}
	for _, s := range isolation.AllProcesses() {
		recorded := s.Identity == rec.Shim || s.Identity == rec.Executor
		if s.Start < rec.Shim.Start || (!recorded && !marked(s, rec, dir)) {
			continue
		}
		add(s)
		for _, d := range isolation.Descendants(s.Pid) {
			add(d)
		}
	}
	return out
}

// marked says whether a process was started for the attempt: its environment
// names the attempt's folder as HOME or TMPDIR, or it is of the executor's
// session and stands in the folder. Standing there alone is no mark: an
// operator who looks around there is not ours to end.
func marked(s isolation.Stat, rec record, dir string) bool {
	f := Layout(dir)
	proc := fmt.Sprintf("/proc/%d/", s.Pid)
	if rec.Executor.Pid != 0 && s.Session == rec.Executor.Pid && s.Start >= rec.Executor.Start {
		cwd, err := os.Readlink(proc + "cwd")
		if err == nil && (cwd == f.Work || strings.HasPrefix(cwd, f.Work+"/")) {
			return true
		}
	}
	env, err := os.ReadFile(proc + "environ")
	if err != nil {
		return false
	}
	for v := range strings.SplitSeq(string(env), "\x00") {
		if v == "HOME="+f.Work || v == "TMPDIR="+f.Tmp || v == envAttempt+"="+dir {
			return true
		}
	}
	return false
}
