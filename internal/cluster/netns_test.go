package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A run with network namespaces is this test once more, as the first process of a
// network of its own: PostgreSQL, object storage, replicas and the test live in it.
// Each runner gets a further network, joined by a cable that can be pulled.

// crossroads is where the test's proxies listen for runners with a network of
// their own.
const crossroads = "10.89.0.1"

// enclosed prepares this binary, with arguments, to run in a new user and network
// namespace. Ids stay what they are, so that files and accounts do too.
func enclosed(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	if os.Geteuid() == 0 {
		// PostgreSQL runs under another account.
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = all, all, true
	} else {
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN}
	}
	cmd.SysProcAttr = attr
	return cmd, nil
}

// probeNetns says in one line why namespaces cannot be had; "" if they can.
func probeNetns() string {
	if _, err := ipTool(); err != nil {
		return err.Error()
	}
	cmd, err := enclosed(verbProbe)
	if err != nil {
		return err.Error()
	}
	out, err := runLocked(cmd)
	if err != nil {
		return fmt.Sprintf("a user and network namespace cannot be made (%v): %s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	return ""
}

// runLocked runs a command that dies with this process.
func runLocked(cmd *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := runOnThread(cmd)
	return out.Bytes(), err
}

// runOnThread keeps the thread that starts the command until it has ended.
func runOnThread(cmd *exec.Cmd) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		result <- cmd.Run()
	}()
	return <-result
}

// tryNetns is what probeNetns runs inside.
func tryNetns() error {
	if err := openCrossroads(); err != nil {
		return err
	}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("a further network namespace: %w", err)
	}
	_, err = newCable(1, cmd.Process.Pid)
	return errors.Join(err, in.Close(), cmd.Wait())
}

func ipTool() (string, error) {
	for _, path := range []string{"ip", "/usr/sbin/ip", "/sbin/ip"} {
		if p, err := exec.LookPath(path); err == nil {
			return p, nil
		}
	}
	return "", errors.New("the tool ip is missing; it is in Debian's package iproute2")
}

func ip(args ...string) error {
	tool, err := ipTool()
	if err != nil {
		return err
	}
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// openCrossroads makes the test's own network usable. It touches no other: a new
// one has nothing that is up.
func openCrossroads() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(i net.Interface) bool { return i.Flags&net.FlagUp != 0 }) {
		return errors.New("this is not a new network namespace; use -cluster.netns and not -cluster.inside")
	}
	return errors.Join(ip("link", "set", "lo", "up"), ip("addr", "add", crossroads+"/32", "dev", "lo"))
}

// cable joins one life of a runner to the test's network. It goes with the runner's
// network.
type cable struct {
	name             string // of the end on this side
	address, gateway string // of the runner, of this side
}

func cableOf(n int) cable {
	block := fmt.Sprintf("10.%d.%d.", 90+n/250, n%250)
	return cable{name: fmt.Sprintf("cable%d", n), address: block + "2", gateway: block + "1"}
}

// newCable lays cable n to the network of a process.
func newCable(n, pid int) (cable, error) {
	c := cableOf(n)
	for _, args := range [][]string{
		{"link", "add", c.name, "type", "veth", "peer", "name", "eth0", "netns", fmt.Sprint(pid)},
		{"addr", "add", c.gateway + "/30", "dev", c.name},
		{"link", "set", c.name, "up"},
	} {
		if err := ip(args...); err != nil {
			return c, err
		}
	}
	return c, nil
}

// pull takes the link down; plug brings it up again.
func (c cable) pull() error { return ip("link", "set", c.name, "down") }
func (c cable) plug() error { return ip("link", "set", c.name, "up") }

// plugIn is the runner's side.
func plugIn(address, gateway string) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"addr", "add", address + "/30", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", gateway},
	} {
		if err := ip(args...); err != nil {
			return err
		}
	}
	return nil
}

// useNetns decides how this run is done, and prints it.
func useNetns(t *testing.T) bool {
	t.Helper()
	switch *runNetns {
	case "off":
		t.Log("network namespaces: off; runners are cut off by proxies only")
		return false
	case "auto", "require":
	default:
		t.Fatalf("-cluster.netns is %q; it is auto, require or off", *runNetns)
	}
	why := probeNetns()
	switch {
	case why == "":
		t.Log("network namespaces: yes; each runner has a network of its own")
		return true
	case *runNetns == "require":
		t.Fatalf("network namespaces: not to be had, and -cluster.netns=require asks for them: %s", why)
	}
	t.Logf("network namespaces: no, so links are not pulled and runners are cut off by proxies only: %s", why)
	return false
}

// enclose runs this test once more, in namespaces.
func enclose(t *testing.T) {
	t.Helper()
	args := append([]string{"-test.run", "^" + t.Name() + "$", "-test.timeout", "0", "-test.v", "-cluster.inside"}, passedOn()...)
	cmd, err := enclosed(args...)
	if err != nil {
		t.Fatal(err)
	}
	if *runFor > 0 {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr // hours: it is to be seen while it runs
		err = runOnThread(cmd)
	} else {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		defer stop()
		var out []byte
		out, err = runLocked(cmd)
		t.Logf("in namespaces:\n%s", out)
	}
	if err != nil {
		t.Errorf("the run in namespaces failed: %v", err)
	}
}

func passedOn() []string {
	return []string{
		fmt.Sprintf("-cluster.for=%s", *runFor), fmt.Sprintf("-cluster.seed=%d", *runSeed), fmt.Sprintf("-cluster.round=%s", *runRound),
	}
}
