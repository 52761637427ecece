package runners

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed ansible/schemas/*.json ssh/schemas/*.json verification/schemas/*.json
var schemaFiles embed.FS

// Job types.
const (
	TypeAnsible      = "ansible"
	TypeSSH          = "ssh"
	TypeVerification = "verification"
)

// Actions of the ansible runner.
const (
	AnsiblePlaybookRun       = "ansible.playbook.run"
	AnsibleRoleRun           = "ansible.role.run"
	AnsibleInventoryValidate = "ansible.inventory.validate"
	AnsibleCheckModeRun      = "ansible.check_mode.run"
)

// ArtifactAnsibleHosts is the artifact of the ansible runner that says what became of
// each host: a JSON object of lists of hosts by ok, changed, failed, unreachable and
// not_run.
const ArtifactAnsibleHosts = "ansible_hosts"

// Actions of the ssh runner.
const (
	SSHCommandRun     = "ssh.command.run"
	SSHFileUpload     = "ssh.file.upload"
	SSHFileDownload   = "ssh.file.download"
	SSHServiceRestart = "ssh.service.restart"
	SSHFactCollect    = "ssh.system.fact.collect"
)

// Actions of the verification runner.
const (
	VerifyHTTPEndpoint  = "verify.http.endpoint"
	VerifyTCPConnect    = "verify.tcp.connect"
	VerifyPostgresReady = "verify.postgres.ready"
	// The probe is one that policy names; a capability is the set of probes that
	// policy requires of it.
	VerifyCustomProbe        = "verify.custom.probe"
	VerifyResourceCapability = "verify.resource.capability"
)

// ProbeReserve is the time of an attempt that its probe leaves for writing
// evidence and artifacts: the probe deadline is at most timeout_seconds less
// this.
const ProbeReserve = 5 * time.Second

// Action is one thing that a JobSpec can ask for.
type Action struct {
	Name    string // such as verify.tcp.connect
	JobType string
	Title   string
	// Schema is the JSON Schema (draft 2020-12) of inputs.parameters. It
	// refuses unknown fields.
	Schema []byte
	// NeedsResources says that target.resources must hold at least one.
	NeedsResources bool
	// Destructive says that controls.destructive must be true.
	Destructive bool
	// MinTimeout is the least controls.timeout_seconds that makes sense.
	MinTimeout time.Duration
}

// Catalog is a set of actions. It never changes and may be used by any number
// of goroutines.
type Catalog struct {
	actions map[string]Action
	schemas map[string]*jsonschema.Schema
}

// Catalogue gives the actions that this build knows.
func Catalogue() *Catalog { return catalogue() }

var catalogue = sync.OnceValue(func() *Catalog {
	c, err := newCatalog(slices.Concat(ansibleActions(), sshActions(), verificationActions()))
	if err != nil {
		panic("runners: the catalogue does not build: " + err.Error())
	}
	return c
})

func verificationActions() []Action {
	probe := func(name, title string) Action {
		return Action{
			Name: name, JobType: TypeVerification, Title: title,
			NeedsResources: true,
			MinTimeout:     ProbeReserve + time.Second,
		}
	}
	return []Action{
		probe(VerifyHTTPEndpoint, "Check an HTTP endpoint"),
		probe(VerifyTCPConnect, "Check that a TCP port accepts connections"),
		probe(VerifyPostgresReady, "Check that a PostgreSQL server is ready"),
		probe(VerifyCustomProbe, "Run a probe that policy names"),
		probe(VerifyResourceCapability, "Check a capability by the probes that policy requires of it"),
	}
}

func ansibleActions() []Action {
	play := func(name, title string) Action {
		return Action{Name: name, JobType: TypeAnsible, Title: title, NeedsResources: true, MinTimeout: 10 * time.Second}
	}
	actions := []Action{
		play(AnsiblePlaybookRun, "Run a playbook of an approved package"),
		play(AnsibleRoleRun, "Run a role of an approved package"),
		play(AnsibleInventoryValidate, "Check an inventory, and a playbook against it"),
		play(AnsibleCheckModeRun, "Say what a playbook would change"),
	}
	actions[2].NeedsResources = false
	return actions
}

func sshActions() []Action {
	on := func(name, title string) Action {
		return Action{Name: name, JobType: TypeSSH, Title: title, NeedsResources: true, MinTimeout: 5 * time.Second}
	}
	return []Action{
		on(SSHCommandRun, "Run a command template of policy on a host"),
		on(SSHFileUpload, "Put a file on a host"),
		on(SSHFileDownload, "Get a file from a host"),
		on(SSHServiceRestart, "Restart a service on a host"),
		on(SSHFactCollect, "Collect facts of a host"),
	}
}

func newCatalog(actions []Action) (*Catalog, error) {
	c := &Catalog{actions: map[string]Action{}, schemas: map[string]*jsonschema.Schema{}}
	for _, a := range actions {
		data, err := schemaFiles.ReadFile(a.JobType + "/schemas/" + a.Name + ".json")
		if err != nil {
			return nil, fmt.Errorf("reading the schema of %s: %w", a.Name, err)
		}
		compiled, err := compileSchema(a.Name, data)
		if err != nil {
			return nil, err
		}
		a.Schema = data
		c.actions[a.Name] = a
		c.schemas[a.Name] = compiled
	}
	return c, nil
}

func compileSchema(name string, data []byte) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", name, err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	for _, f := range formats() {
		compiler.RegisterFormat(f)
	}
	url := "urn:action:" + name
	if err := compiler.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("adding the schema of %s: %w", name, err)
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("compiling the schema of %s: %w", name, err)
	}
	return compiled, nil
}

// Lookup gives the action of that name. Extension actions are not here, see
// IsExtension.
func (c *Catalog) Lookup(name string) (Action, bool) {
	a, ok := c.actions[name]
	a.Schema = slices.Clone(a.Schema)
	return a, ok
}

// List gives every action, sorted by name.
func (c *Catalog) List() []Action {
	out := make([]Action, 0, len(c.actions))
	for _, a := range c.actions {
		a.Schema = slices.Clone(a.Schema)
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Action) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// prefixes are the first part of an action's name, and the job type it means.
var prefixes = map[string]string{
	"ansible": "ansible", "kubernetes": "kubernetes", "helm": "helm",
	"opentofu": "opentofu", "ssh": "ssh", "verify": TypeVerification,
}

var extensionName = regexp.MustCompile(`^([a-z]+)\.x\.[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// IsExtension says whether the name is that of a team's own action,
// <prefix>.x.<name>, with the prefix of one of the six job types. Such an
// action has no schema here. It is accepted only if policy approves a runner
// for it (policy.Bundle.ApprovesExtension), which no built-in rule does.
func IsExtension(name string) bool {
	if len(name) > 128 {
		return false
	}
	m := extensionName.FindStringSubmatch(name)
	return m != nil && prefixes[m[1]] != ""
}

// JobTypeOf gives the job type that an action's prefix stands for, "" if none.
func JobTypeOf(action string) string {
	prefix, _, _ := strings.Cut(action, ".")
	return prefixes[prefix]
}
