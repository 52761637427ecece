package ansible

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed plugins/*.py
var plugins embed.FS

// Names of our two plugins, which are their files' names too.
const (
	eventsPlugin = "execution_plane_events"
	guardPlugin  = "execution_plane_guard"
)

// environment is the whole environment of every tool: nothing is taken over but
// where programs and temporary files are.
func (a *attempt) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "TMPDIR=" + a.short, "SHELL=/bin/sh",
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8",
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONNOUSERSITE=1", "PYTHONUNBUFFERED=1", "PYTHONSAFEPATH=1",
		"ANSIBLE_CONFIG=" + a.path("ansible.cfg"), "ANSIBLE_HOME=" + a.path("home"),
		"EXECUTION_PLANE_GUARD=" + a.guard(), "EXECUTION_PLANE_GUARD_FD=4", "EXECUTION_PLANE_EVENTS_FD=3",
	}
}

// guard is what the Python plugins hold a run to.
func (a *attempt) guard() string {
	roots := []string{a.dir}
	if a.pack != nil {
		roots = []string{a.pack.dir, a.dir}
	}
	// Never null: the plugins go through them.
	become, secrets := append([]string{}, a.grant.Become...), append([]string{}, sortedNames(a.p.SecretVariables)...)
	b, err := json.Marshal(map[string]any{
		"connections": a.grant.Connections, "become": become, "roots": roots,
		"lookups_refused": lookupsRefused, "secrets": secrets,
		// Not the folder of ours as a whole: ssh's configuration and the events stand there.
		"writable": []string{a.path("tmp"), a.path("home"), a.short},
	})
	if err != nil {
		return "{}" // lists of text always encode
	}
	return string(b)
}

func (a *attempt) path(name string) string { return filepath.Join(a.dir, name) }

// maxShort bounds the path of the folder for sockets, in bytes. The kernel takes 107
// for a socket, and Python adds /pymp-12345678/listener-12345678.
const maxShort = 107 - 40

// prepareShort makes the folder for sockets, which is the tools' TMPDIR too. The
// work folder may lie too deep for that.
func (a *attempt) prepareShort() error {
	parent := os.TempDir()
	if len(parent)+len("/a1234567890") > maxShort {
		parent = "/tmp"
	}
	dir, err := os.MkdirTemp(parent, "a")
	if err != nil {
		return fmt.Errorf("making the folder for sockets: %w", err)
	}
	a.short = dir
	a.closers = append(a.closers, func() error { return os.RemoveAll(dir) })
	return nil
}

// prepare makes the folders and files that every tool needs.
func (a *attempt) prepare() error {
	if err := a.prepareShort(); err != nil {
		return err
	}
	for _, d := range []string{"", "tmp", "home", "none", "events", "guard", "ssh"} {
		if err := os.MkdirAll(a.path(d), 0o700); err != nil {
			return fmt.Errorf("making a folder for ansible: %w", err)
		}
	}
	// Each in a folder of its own: ansible loads all of a folder as one kind.
	for name, folder := range map[string]string{eventsPlugin: "events", guardPlugin: "guard"} {
		code, err := plugins.ReadFile("plugins/" + name + ".py")
		if err != nil {
			return fmt.Errorf("reading a plugin: %w", err)
		}
		if err := a.write(folder+"/"+name+".py", code); err != nil {
			return err
		}
	}
	return nil
}

func (a *attempt) write(name string, data []byte) error {
	if err := os.WriteFile(a.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s for ansible: %w", name, err)
	}
	return nil
}

// foreignPlugins are the settings by which ansible would look for code in the
// home folder and in /usr/share/ansible. Each is pointed at an empty folder.
var foreignPlugins = []string{
	"action_plugins", "become_plugins", "cache_plugins", "cliconf_plugins", "connection_plugins", "filter_plugins",
	"httpapi_plugins", "lookup_plugins", "netconf_plugins", "strategy_plugins", "terminal_plugins", "test_plugins",
	"vars_plugins", "library", "module_utils",
}

// config is ansible.cfg. It is ours alone: no other is read.
func (a *attempt) config() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	packages := a.path("none")
	if a.pack != nil {
		packages = escapeConfig(a.pack.dir)
	}
	line("[defaults]")
	line("inventory = %s", escapeConfig(a.path("inventory.yml")))
	line("roles_path = %s/roles", packages)
	line("collections_path = %s/collections", packages)
	line("collections_scan_sys_path = False")
	line("local_tmp = %s", escapeConfig(a.path("tmp")))
	line("callback_plugins = %s", escapeConfig(a.path("events")))
	line("callbacks_enabled = %s", eventsPlugin)
	line("inventory_plugins = %s", escapeConfig(a.path("guard")))
	for _, name := range foreignPlugins {
		line("%s = %s", name, escapeConfig(a.path("none")))
	}
	line("stdout_callback = default")
	line("retry_files_enabled = False")
	line("host_key_checking = True")
	line("interpreter_python = /usr/bin/python3")
	line("transport = %s", a.p.Connection)
	if a.p.Connection == connectionLocal {
		// The home folder of the account may be another than HOME, or none.
		line("remote_tmp = %s", escapeConfig(a.path("tmp")))
	}
	line("timeout = %d", a.p.TimeoutSeconds)
	line("forks = %d", a.p.Forks)
	line("strategy = %s", a.p.Strategy)
	line("nocows = True")
	line("nocolor = True")
	line("deprecation_warnings = False")
	line("localhost_warning = False")
	line("[inventory]")
	line("enable_plugins = %s, yaml, ini", guardPlugin)
	line("any_unparsed_is_failed = True")
	line("inventory_unparsed_warning = False")
	line("[ssh_connection]")
	line("ssh_args = -F %s", escapeConfig(a.path("ssh/config")))
	line("pipelining = False")
	line("retries = 0")
	line("[persistent_connection]")
	line("control_path_dir = %s", escapeConfig(a.path("tmp")))
	line("[galaxy]")
	line("server_list =")
	return b.String()
}

// escapeConfig keeps a path from being read as a template or an interpolation.
func escapeConfig(path string) string { return strings.ReplaceAll(path, "%", "%%") }
