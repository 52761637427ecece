package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent"
	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/internal/embedded"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/internal/vaulttest"
	"github.com/platform-core/execution-plane-service/packages"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

// machines is a deployment with a Vault and hosts that it may log in to.
type machines struct {
	*world
	vault *vaulttest.Process
	roles vaulttest.Setup
	hosts []*sshtest.Host
	down  []int // a port of each host where nothing listens, with the host's key pinned
	pack  *packages.Built
	file  string // of the package
}

const machineUnits = "nginx.service"

// newMachines makes a package of dir, hosts that have a key each in Vault, and a
// policy that approves all of them; more is added to the policy.
func newMachines(t *testing.T, dir string, hosts int, more string) *machines {
	t.Helper()
	m := &machines{vault: vaulttest.Server(t), file: filepath.Join(t.TempDir(), "package.tar.zst")}
	m.roles = m.vault.Standard()
	var err error
	if m.pack, err = packages.BuildFile(dir, m.file, packages.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	var known []string
	for i := range hosts {
		h := sshtest.Start(t, sshtest.Options{Sudo: sshtest.SudoAllows, Units: map[string]string{machineUnits: "", "web.service": ""}})
		m.hosts = append(m.hosts, h)
		down := closedPort(t)
		m.down = append(m.down, down)
		for _, line := range h.KnownHosts {
			known = append(known, line, strings.Replace(line, fmt.Sprintf(":%d", h.Port), fmt.Sprintf(":%d", down), 1))
		}
		m.vault.Put("kv2", fmt.Sprintf("hosts/%d", i), map[string]any{"key": string(h.Key.PEM)})
	}
	lines, err := json.Marshal(known)
	if err != nil {
		t.Fatal(err)
	}
	b, err := policy.Overlay(policy.BuiltinDev(), fstest.MapFS{"machines.yaml": &fstest.MapFile{Data: []byte(fmt.Sprintf(`
secret_mappings:
  - name: hosts
    reference: vault://kv2/**
    environments: [test]
    job_types: [verification, ansible, ssh]
    actions: ["*"]
    policies: [read-kv2]
    token_role: attempts
host_keys:
  - name: machines
    environments: [test]
    known_hosts: %s
packages:
  - name: %s
    sha256: [%s]
    actions: ["ansible.*"]
    environments: [test]
    playbooks: ["**"]
    roles: ["*"]
    max_forks: 5
`, lines, m.pack.Reference.Name, m.pack.SHA256) + more)}})
	if err != nil {
		t.Fatal(err)
	}
	m.world = newWorld(t, setup{policy: b, profile: quick()})
	return m
}

// push puts the package into the bucket.
func (m *machines) push(s *replica) {
	m.t.Helper()
	f, err := os.Open(m.file)
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	if _, created, err := s.operator.PushPackage(m.ctx, newKey(), client.File{Body: f, Bytes: m.pack.Compressed, SHA256: m.pack.SHA256}); err != nil || !created {
		m.t.Fatalf("push the package: %v, %v", created, err)
	}
}

// startTyped starts a runner of a job type, of four slots, in this process.
func (m *machines) startTyped(url, jobType string) *runner {
	m.t.Helper()
	return m.startSlots(url, jobType, 4)
}

func (m *machines) startSlots(url, jobType string, slots int) *runner {
	m.t.Helper()
	self, err := os.Executable()
	if err != nil {
		m.t.Fatal(err)
	}
	connect, err := agent.Dial(url, "execution-plane-e2e")
	if err != nil {
		m.t.Fatal(err)
	}
	r := &runner{w: m.world, dir: filepath.Join(m.t.TempDir(), "runner-"+jobType)}
	c, err := embedded.RunnerConfig(m.ctx, jobType, self, "1.0.0", agent.Config{
		Connect: connect, EnrolmentToken: m.enrolment(), StateDir: r.dir, Slots: slots, Log: m.logger("runner"), DrainLimit: 30 * time.Second,
		Vault: &vault.Config{Address: m.vault.Address, Login: vault.AppRole{RoleID: m.roles.RoleID, SecretIDFile: m.roles.SecretIDFile}, Patience: 3 * time.Second},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	if r.agent, err = agent.New(c); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel, r.ended = cancel, make(chan error, 1)
	go func() { r.ended <- r.agent.Run(ctx) }()
	m.eventually("the runner registers", func() bool {
		v, err := m.desk.Reads.Runner(m.ctx, r.agent.RunnerID())
		return err == nil && v.Status == string(domain.RunnerActive)
	})
	r.id = r.agent.RunnerID()
	m.runners = append(m.runners, r)
	return r
}

// job is a job on all the hosts.
func (m *machines) job(jobType, action, parameters string, change ...func(*domain.JobSpec)) *domain.JobSpec {
	s := &domain.JobSpec{
		OperationID: domain.NewID[domain.OperationID](uuid.New()), PlanNodeID: "change", AttemptID: domain.NewID[domain.AttemptID](uuid.New()),
		JobType: jobType, Action: action, Target: domain.Target{Environment: "test"},
		Inputs:   domain.Inputs{Parameters: json.RawMessage(strings.ReplaceAll("{"+parameters+"}", "PACKAGE", m.pack.Reference.String()))},
		Controls: domain.Controls{TimeoutSeconds: 400, AllowedCommandsRef: "test/commands"},
	}
	if jobType == "ansible" {
		s.Controls.AllowedCommandsRef = ""
	}
	for i, h := range m.hosts {
		secret := fmt.Sprintf("key-%d", i)
		s.Target.Resources = append(s.Target.Resources, domain.Resource{ResourceID: fmt.Sprintf("node-%d", i), ResourceType: "compute.node",
			Binding: &domain.Binding{Address: h.Address, Port: h.Port, User: h.User, AccessSecret: secret}})
		s.Inputs.Secrets = append(s.Inputs.Secrets, domain.SecretInput{Name: secret, SecretRef: fmt.Sprintf("vault://kv2/hosts/%d#key", i)})
	}
	for _, c := range change {
		c(s)
	}
	return s
}

// stored reads an artifact of an attempt as JSON.
func (m *machines) stored(id domain.AttemptID, name string, into any) {
	m.t.Helper()
	rows, err := m.desk.Reads.Artifacts(m.ctx, id)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, a := range rows {
		if a.Name != name {
			continue
		}
		b := a.Inline
		if len(b) == 0 {
			if b, err = m.object(m.ctx, *a.ObjectKey); err != nil {
				m.t.Fatal(err)
			}
		}
		if err := json.Unmarshal(b, into); err != nil {
			m.t.Fatalf("artifact %s: %v\n%s", name, err, b)
		}
		return
	}
	m.t.Fatalf("%s has no artifact %s", id, name)
}
