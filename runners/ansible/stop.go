package ansible

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
)

// Parts of the time that a stop may take; together they stay below the action's
// stop budget.
const (
	sweepTimeout = 6 * time.Second // ending what runs on the hosts
	maxSweeps    = 100             // connections that are made for that
)

// remoteEnd says what became of a task that ran on a host when the run was stopped.
type remoteEnd struct {
	Host  string `json:"host,omitempty"`
	Task  string `json:"task,omitempty"`
	Ended bool   `json:"ended"`
	Note  string `json:"note,omitempty"`
}

// stopRun ends a run: first it is frozen, so that ansible starts nothing more, then
// the processes of its tasks are killed on the hosts, then the tree here.
//
// ansible and ssh alone would not do: a remote process that ignores the hang-up
// outlives its connection.
func (a *attempt) stopRun(root int) []remoteEnd {
	frozen := freeze(root)
	ends := a.sweep(frozen)
	kill(frozen)
	endTree(root)
	return ends
}

// endLeft ends what still runs on the hosts after ansible-playbook died by itself:
// its workers and their ssh clients have become children of this process.
func (a *attempt) endLeft() []remoteEnd {
	if len(sessionsOf(descendants(os.Getpid()))) == 0 {
		return nil
	}
	frozen := freezeBelow()
	ends := a.sweep(frozen)
	kill(frozen)
	return ends
}

// session is one ssh client of the run, with the folder that its task has on the host.
type session struct {
	argv   []string // without the command
	marker string
	dest   string // address and port
}

// taskFolder is the folder that ansible makes on a host for one task. Its name is
// in the arguments of the processes there and of the ssh client here.
var taskFolder = regexp.MustCompile(`ansible-tmp-[0-9]+\.[0-9]+-[0-9]+-[0-9]+`)

func (a *attempt) sweep(pids []int) []remoteEnd {
	sessions := sessionsOf(pids)
	if len(sessions) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	ends := make([]remoteEnd, len(sessions))
	var g errgroup.Group
	g.SetLimit(16)
	for i, s := range sessions {
		ends[i] = remoteEnd{Host: a.hostAt(s.dest), Note: "too many connections to end them all"}
		if i >= maxSweeps {
			continue
		}
		g.Go(func() error {
			ends[i].Ended, ends[i].Note = a.sweepOne(ctx, s)
			return nil
		})
	}
	_ = g.Wait() // no sweep gives an error
	return ends
}

// sessionsOf finds ssh clients that run a task, by their arguments.
func sessionsOf(pids []int) []session {
	var out []session
	for _, pid := range pids {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			continue
		}
		argv := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		if s, ok := sessionOf(argv); ok && !slices.ContainsFunc(out, func(o session) bool { return o.marker == s.marker && o.dest == s.dest }) {
			out = append(out, s)
		}
	}
	return out
}

func sessionOf(argv []string) (session, bool) {
	if len(argv) < 3 || !strings.HasSuffix(argv[0], "ssh") {
		return session{}, false
	}
	last := len(argv) - 1
	marker := taskFolder.FindString(argv[last])
	if marker == "" {
		return session{}, false
	}
	s := session{marker: marker, dest: argv[last-1]}
	for _, arg := range argv[:last] {
		if port, ok := strings.CutPrefix(arg, "Port="); ok {
			s.dest += " " + port
		}
		if arg != "-tt" {
			s.argv = append(s.argv, arg)
		}
	}
	return s, true
}

// hostAt names the host of the inventory at "address port".
func (a *attempt) hostAt(dest string) string {
	for _, h := range a.inventory.hosts {
		if fmt.Sprintf("%s %d", h.addr, h.port) == dest {
			return h.name
		}
	}
	return ""
}

// sweepScript kills every process of the sessions in which the task's folder is
// named, and prints how many are left. The name is cut in two, so that the script
// does not find itself. Each connection of ansible has a terminal and so a session
// of its own.
//
// A host may be the runner's own machine. What there has the guard's variable in its
// environment is this run itself, here: the sessions of such processes are left alone.
//
// Processes come and go while it looks. grep passes over a file that is gone by now;
// some kinds of awk end there, and what it had not read yet would count as not there.
const sweepScript = `m='%s''%s'; n=0
own=" $(echo $(for f in $(grep -lsF EXECUTION_PLANE_GUARD_FD= /proc/[0-9]*/environ); do sed 's/.*) //' "${f%%/environ}/stat" 2>/dev/null | cut -d' ' -f4; done | sort -u)) "
while [ $n -lt 20 ]; do
  s=$(for f in $(grep -lsF "$m" /proc/[0-9]*/cmdline); do sed 's/.*) //' "${f%%/cmdline}/stat" 2>/dev/null | cut -d' ' -f4; done | sort -u)
  [ $n -gt 0 ] && s="$s $seen"
  seen=$s
  p=$(for i in $s; do case "$own" in *" $i "*) continue;; esac; grep -Hs ')' /proc/[0-9]*/stat | awk -v s="$i" '{ split($0, at, "/"); sub(/.*\) /, ""); if ($4 == s && $1 != "Z") print at[3] }'; done)
  [ -z "$p" ] && break
  kill -9 $p 2>/dev/null
  n=$((n+1)); sleep 0.1
done
echo "left $(echo $p | wc -w)"`

func sweepOf(marker string) string {
	half := len("ansible-tmp-")
	return fmt.Sprintf(sweepScript, marker[:half], marker[half:])
}

// sweepOne ends one task's processes on its host, by the connection's own options.
func (a *attempt) sweepOne(ctx context.Context, s session) (bool, string) {
	command, err := sshaccess.Quote([]string{"sh", "-c", sweepOf(s.marker)})
	if err != nil {
		return false, err.Error()
	}
	if len(a.grant.Become) > 0 {
		// What the task became is ended with the same right, where it is given.
		command = "if sudo -n true 2>/dev/null; then sudo -n " + command + "; else " + command + "; fi"
	}
	cmd := exec.CommandContext(ctx, s.argv[0], append(slices.Clone(s.argv[1:]), command)...)
	cmd.Dir, cmd.Env = a.dir, a.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { endTree(cmd.Process.Pid); return nil }
	cmd.WaitDelay = time.Second
	out := &bounded{limit: 4 << 10}
	cmd.Stdout = out
	err = cmd.Run()
	switch {
	case err != nil:
		return false, "the host could not be asked to end it"
	case bytes.Contains(out.b.Bytes(), []byte("left 0")):
		return true, ""
	}
	return false, "processes of the task are left on the host"
}
