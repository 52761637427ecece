package policy

import (
	"io/fs"
	"regexp"
	"time"
)

// packageRule approves packages by digest, and says what of them may be run and
// how.
type packageRule struct {
	Rule         string
	Name         string
	SHA256       []string // lower-case hex
	Actions      []string // globs
	Environments []string // globs
	Playbooks    []string // path globs, see matchPath
	Roles        []string // globs
	Connections  []string
	Become       []string // users
	Variables    []string // globs; empty: all that are not reserved
	MaxForks     int
	Strategies   []string
	When         *expression
}

// commandTemplate is one command of a set.
type commandTemplate struct {
	Rule        string
	Name        string
	Argv        []element
	Arguments   map[string]*argument
	Sudo        string // the user, "" for none
	Timeout     time.Duration
	MaxOutput   int64
	ExitCodes   []int
	Destructive bool
	Output      string
	When        *expression
}

// fileRule is a folder of hosts below which files may be put or got.
type fileRule struct {
	Rule       string
	Name       string
	Directions []string
	Root       string
	MaxBytes   int64
	Mode       fs.FileMode
	When       *expression
}

// serviceRule names units that may be restarted.
type serviceRule struct {
	Rule           string
	Units          []string // globs
	Sudo           string
	Restart, State []element
	When           *expression
}

// hostKeyRule pins host keys under a name.
type hostKeyRule struct {
	Rule         string
	Name         string
	Environments []string
	Lines        []string
	When         *expression
}

// isolationRule is the least isolation of some actions.
type isolationRule struct {
	Rule         string
	Actions      []string
	Environments []string
	AtLeast      string
	Network      string
	Image        string
}

// probeRule is a named check with an assertion.
type probeRule struct {
	Rule         string
	Name         string
	Environments []string
	Check        string
	Commands     string // ssh: the command set
	Template     string // ssh: its template
	Package      string // ansible: name of the approved package
	SHA256       string // ansible: its digest
	Playbook     string
	Parameters   map[string]any
	Assert       *expression
	When         *expression
}

// capabilityRule is the set of probes that stand for a capability.
type capabilityRule struct {
	Rule          string
	Name          string
	ResourceTypes []string // globs
	Probes        []CapabilityProbe
	When          *expression
}

// argument is one typed argument of a template.
type argument struct {
	Name      string
	Type      string
	Pattern   *regexp.Regexp // string; nil: any text without control characters
	MaxLength int            // string; characters
	Values    []string       // enum
	Min, Max  int64          // integer
	Root      string         // path; clean and absolute
	Units     []string       // unit; globs
	Default   *string        // as it is rendered; nil: the job must give it
	AllowDash bool
}

// Types of an argument.
const (
	argumentString  = "string"
	argumentEnum    = "enum"
	argumentInteger = "integer"
	argumentPath    = "path"
	argumentUnit    = "unit"
)

var argumentTypes = []string{argumentString, argumentEnum, argumentInteger, argumentPath, argumentUnit}

// Defaults of the rules.
const (
	defaultForks     = 10
	defaultTimeout   = time.Minute
	defaultMaxOutput = 1 << 20
	defaultMaxBytes  = 1 << 20
	defaultMaxLength = 256
	defaultMode      = fs.FileMode(0o640)
)

// factNames are what ssh.system.fact.collect can collect.
var factNames = []string{"cpu", "disks", "hostname", "kernel", "memory", "os", "uptime"}
