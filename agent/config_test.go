package agent

import (
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
		"cannot be given":       func(c *Config) { c.Isolation = []string{"process", "sandbox"} },
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
	c := Config{Isolation: []string{"container", "process", "sandbox"}}
	for asked, want := range map[string]string{"process": "process", "sandbox": "sandbox", "container": "container"} {
		if got, ok := c.isolationFor(asked); !ok || got != want {
			t.Errorf("asked for %s: %s, %v", asked, got, ok)
		}
	}
	c.Isolation = []string{"process"}
	for _, asked := range []string{"sandbox", "container", "", "vm"} {
		if got, ok := c.isolationFor(asked); ok {
			t.Errorf("asked for %q and got %s", asked, got)
		}
	}
	c.Isolation = []string{"container"}
	if got, ok := c.isolationFor("process"); !ok || got != "container" {
		t.Errorf("a stronger level does for a weaker one; got %s, %v", got, ok)
	}
}
