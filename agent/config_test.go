package agent

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigIsChecked(t *testing.T) {
	good := func() Config {
		return Config{
			Connect: func(string) Plane { return nil }, StateDir: "/var/lib/x", Name: "n", Version: "1", Slots: 1, Shim: []string{"s"},
			Executors: map[string]Executor{"verification": {Argv: []string{"/bin/true"}}},
		}
	}
	c := good()
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"no way to the service": func(c *Config) { c.Connect = nil },
		"state folder":          func(c *Config) { c.StateDir = "relative" },
		"name and version":      func(c *Config) { c.Version = "" },
		"slots":                 func(c *Config) { c.Slots = 0 },
		"no executor":           func(c *Config) { c.Executors = nil },
		"job type":              func(c *Config) { c.Executors["shell"] = Executor{Argv: []string{"/bin/sh"}} },
		"absolute path":         func(c *Config) { c.Executors["helm"] = Executor{Argv: []string{"helm"}} },
		"isolation \"vm\"":      func(c *Config) { c.Isolation = []string{"process", "vm"} },
		"root file system x":    func(c *Config) { c.RootFS = map[string]string{"x": "/nowhere"} },
		"must not be shown":     func(c *Config) { c.ReadOnly = []string{"/"} },
		"clean absolute path":   func(c *Config) { c.ReadOnly = []string{"opt"} },
		"enrolment token":       func(c *Config) { c.EnrolmentToken = "ee_x\n" },
		"shim":                  func(c *Config) { c.Shim = nil },
		"negative limit":        func(c *Config) { c.SpoolQuota = -1 },
	} {
		c := good()
		change(&c)
		if err := c.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestIsolationIsNeverWeakened(t *testing.T) {
	for _, tc := range []struct{ given, asked, want string }{
		{"container process sandbox", "process", "process sandbox container"},
		{"container process sandbox", "sandbox", "sandbox container"},
		{"container process sandbox", "container", "container"},
		{"process", "sandbox", ""},
		{"process", "container", ""},
		{"process", "", ""},
		{"process", "vm", ""},
		{"container", "process", "container"}, // a stronger level does for a weaker one
	} {
		c := Config{Isolation: strings.Fields(tc.given)}
		if got := strings.Join(c.isolationFor(tc.asked), " "); got != tc.want {
			t.Errorf("asked for %q where %s is given: %q, want %q", tc.asked, tc.given, got, tc.want)
		}
	}
}

func TestWhatSandboxesMayBeShown(t *testing.T) {
	opt := t.TempDir()
	c := Config{StateDir: filepath.Join(opt, "state")}
	for _, p := range []string{opt, "/", c.StateDir, "/dev", "/run"} {
		c.ReadOnly = []string{p}
		if err := c.checkIsolation(); err == nil {
			t.Errorf("%s may be shown, with the agent's own files", p)
		}
	}
	c.ReadOnly = []string{t.TempDir()}
	if err := c.checkIsolation(); err != nil {
		t.Error(err)
	}
}
