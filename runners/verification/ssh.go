package verification

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/internal/sshaccess"
	"github.com/platform-core/execution-plane-service/policy"
)

// Classes of error of a check that runs something on the target. None of them is an
// observation: what the probe asks for was not seen.
const (
	classHostKey    = "host_key_refused"
	classLogin      = "login_refused"
	classNotStarted = "not_started"
	classLost       = "connection_lost"
	classSudo       = "sudo_refused"
	classOutput     = "too_much_output"
	classNoJSON     = "output_no_json"
)

const (
	// defaultConnect bounds the way to the host, up to the login.
	defaultConnect = 10 * time.Second
	// maxToldOutput bounds what an assertion sees of a stream, in bytes; JSON is read
	// whole.
	maxToldOutput = 64 << 10
	// stopGrace is the time between TERM and KILL for a command that must end. It is
	// short, since the time for writing evidence begins with the deadline.
	stopGrace = 2 * time.Second
)

// sshCheck runs the command of a template on the resource.
type sshCheck struct {
	target  sshaccess.Target
	connect time.Duration
	command policy.Command
	guard   *guard
}

func newSSHCheck(req, inner Request, c customParameters, probe policy.Probe, in policy.Input, g *guard) (unit, check, error) {
	p, err := newPlan(inner)
	if err != nil {
		return unit{}, nil, err
	}
	lines, err := hostKeys(req, c, in, g)
	if err != nil {
		return unit{}, nil, err
	}
	pins, err := sshaccess.KnownHosts(lines)
	if err != nil {
		return unit{}, nil, fmt.Errorf("reading the host keys: %w", err)
	}
	if err := sshaccess.CheckUser(p.resource.User); err != nil {
		return unit{}, nil, fmt.Errorf("binding.user of resource %q: %w", p.target.ResourceID, err)
	}
	key, err := accessKey(req, p.resource)
	if err != nil {
		return unit{}, nil, err
	}
	connect := defaultConnect
	if c.ConnectTimeoutSeconds > 0 {
		connect = seconds(c.ConnectTimeoutSeconds)
	}
	if c.TimeoutSeconds == 0 {
		p.timeout = connect + probe.Command.Timeout
	}
	p.lastTry = min(p.timeout, 3*time.Second, p.deadline/4)
	s := &sshCheck{connect: connect, command: probe.Command, guard: g, target: sshaccess.Target{
		Hop:  sshaccess.Hop{Host: p.target.Host, Port: p.target.Port, User: p.resource.User, Key: key},
		Pins: pins, ConnectTimeout: connect, Resolver: g.resolver,
	}}
	return unit{plan: p, evidence: commandCheck}, s, nil
}

func accessKey(req Request, r Resource) (sshaccess.Key, error) {
	if r.AccessSecret == "" {
		return sshaccess.Key{}, fmt.Errorf("resource %q has no binding.access_secret, which logs in to it", r.ID)
	}
	file, ok := req.Task.Secrets[r.AccessSecret]
	if !ok {
		return sshaccess.Key{}, fmt.Errorf("resource %q names the access secret %q, which the job does not have", r.ID, r.AccessSecret)
	}
	return sshaccess.LoadKey(file)
}

func (s *sshCheck) look(ctx context.Context) finding {
	began := time.Now()
	client, err := sshaccess.Dial(ctx, s.target, func(host string, addr netip.AddrPort) error { return s.guard.check(host, addr) })
	if err != nil {
		return s.unseen(err, time.Since(began))
	}
	defer client.Close()
	result, err := client.Run(ctx, s.command.Argv, s.command.Sudo, sshaccess.Limits{
		Run: s.command.Timeout, Output: s.command.MaxOutput, Grace: stopGrace})
	if err != nil {
		return s.unseen(err, time.Since(began))
	}
	f := finding{observation: observation{latency: time.Since(began), attrs: describeRun(result)}}
	switch {
	case result.SudoRefused:
		f.class = classSudo
	case result.Stopped == sshaccess.StopLost:
		f.class = classLost
	case result.Stopped == sshaccess.StopOutput || result.Stopped == "" && s.full(result):
		f.class = classOutput
	case result.Stopped != "":
		f.class = classTimeout
	default:
		s.tell(&f, result)
	}
	return f
}

// full says that the output met its limit though the command came to its own end just
// then: what came after is not there.
func (s *sshCheck) full(r sshaccess.Result) bool {
	return int64(len(r.Stdout)+len(r.Stderr)) >= s.command.MaxOutput
}

// unseen is the finding of a try that ran nothing, or whose command is lost from
// sight.
func (s *sshCheck) unseen(err error, took time.Duration) finding {
	var (
		denied     *sshaccess.DeniedError
		hostKey    *sshaccess.HostKeyError
		auth       *sshaccess.AuthError
		notStarted *sshaccess.NotStartedError
		lost       *sshaccess.LostError
		dns        *net.DNSError
	)
	f := finding{observation: observation{latency: took}}
	switch {
	case errors.As(err, &denied):
		f.class, f.denied = classDenied, true
	case errors.As(err, &hostKey):
		// What the host showed is not what was pinned: no more tries, and none of
		// the job's business with this host goes on.
		f.class, f.denied = classHostKey, true
		f.attrs = map[string]any{"host_key": hostKey.Offered}
	case errors.As(err, &auth):
		f.class = classLogin
	case errors.As(err, &notStarted):
		f.class = classNotStarted
	case errors.As(err, &lost):
		f.class = classLost
	case errors.As(err, &dns):
		f.class = classDNS
	default:
		f.class, _ = classify(err)
		if f.class == classNetwork && took >= s.connect {
			f.class = classTimeout
		}
	}
	return f
}

// describeRun is what is kept of a run: numbers and digests, never its text.
func describeRun(r sshaccess.Result) map[string]any {
	sum := sha256.Sum256(r.Stdout)
	attrs := map[string]any{"stdout_bytes": len(r.Stdout), "stdout_sha256": hex.EncodeToString(sum[:]), "stderr_bytes": len(r.Stderr)}
	if r.Exit >= 0 {
		attrs["exit_code"] = r.Exit
	}
	if r.Stopped != "" {
		attrs["stopped"], attrs["end_confirmed"] = string(r.Stopped), r.Confirmed
	}
	return attrs
}

// tell makes the sample of a command that came to its own end.
func (s *sshCheck) tell(f *finding, r sshaccess.Result) {
	sample := map[string]any{"exit_code": r.Exit, "ok": slices.Contains(s.command.ExitCodes, r.Exit),
		"stdout": text(r.Stdout), "stderr": text(r.Stderr), "stdout_truncated": len(r.Stdout) > maxToldOutput}
	if s.command.Output == "json" {
		var doc any
		if err := decode(bytes.TrimSpace(r.Stdout), &doc); err != nil {
			f.cut = classNoJSON
		} else {
			sample["json"] = doc
		}
	}
	f.seen, f.sample = true, sample
}

// text is what of a stream an assertion sees.
func text(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), maxToldOutput)]), "\uFFFD")
}
