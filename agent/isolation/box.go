package isolation

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Image is what a container is made from.
type Image struct {
	// Name is the image's in policy.
	Name string `json:"name,omitempty"`
	// Reference, such as registry.example/ansible, and Digest, sha256:<hex>, name an
	// OCI image.
	Reference string `json:"reference,omitempty"`
	Digest    string `json:"digest,omitempty"`
	// RootFS is an absolute folder that holds a root file system. It is never
	// written. It stands before Reference.
	RootFS string `json:"rootfs,omitempty"`
}

// Box describes what one executor is shut into. All paths are absolute and the same
// inside as outside.
type Box struct {
	Engine  Engine
	Network string
	Image   Image
	// ReadOnly and Writable are files and folders that are shown; what is not named
	// and not of the base is not there. A later one may lie inside an earlier one.
	ReadOnly, Writable []string
	// Scratch bounds /tmp and /dev/shm, each, in bytes.
	Scratch uint64
	// Dir is a folder for the engine's own needs, of this run alone. It must be
	// there and be passable for the executor's user. State is below it.
	Dir string
	// ID names the container.
	ID string
	// UID and GID are the executor's, as it sees them; Home is its work folder.
	UID, GID int
	Home     string
	// EngineUID is the user that the engine itself runs as.
	EngineUID int
	// Argv is what runs inside as the first process, with Env and no other.
	Argv, Env []string
	// Passed is how many descriptors from 3 on it gets.
	Passed int
	Limits Limits
	// NoUserNamespace leaves the user namespace out where there can be none.
	NoUserNamespace bool
}

// hostname is what the executor's machine is called inside.
const hostname = "executor"

// Command writes what the engine needs into Dir and gives the engine's command line.
func (b *Box) Command() ([]string, error) {
	view, err := b.view()
	if err != nil {
		return nil, err
	}
	switch b.Engine.Name {
	case Bubblewrap:
		return b.bubblewrap(view), nil
	case Runc, Crun:
		return b.runtime(view)
	case Podman:
		return b.podman(view)
	}
	return nil, fmt.Errorf("no isolation engine is called %q", b.Engine.Name)
}

// mount is one thing that is shown inside.
type mount struct {
	kind     kind
	from, at string
	writable bool
}

type kind int

const (
	bind    kind = iota
	scratch      // a memory file system of Box.Scratch bytes
	link         // a symbolic link to from
)

// view lists what is shown, in order of being mounted.
func (b *Box) view() ([]mount, error) {
	own := []mount{{kind: scratch, at: "/tmp", writable: true}, {kind: scratch, at: "/dev/shm", writable: true}}
	identity, err := b.identity()
	if err != nil {
		return nil, err
	}
	named := identity
	for _, p := range b.ReadOnly {
		named = append(named, mount{from: p, at: p})
	}
	for _, p := range b.Writable {
		named = append(named, mount{from: p, at: p, writable: true})
	}
	var base []mount
	if b.Engine.Level() != LevelContainer {
		base = hostBase()
	}
	var shown []mount
	for _, m := range named {
		if !filepath.IsAbs(m.at) || filepath.Clean(m.at) != m.at || m.at == "/" {
			return nil, fmt.Errorf("show %q inside: it is not a clean absolute path", m.at)
		}
		if _, err := os.Stat(m.from); err != nil {
			return nil, fmt.Errorf("show %s inside: %w", m.at, err)
		}
		if !m.writable && m.from == m.at && coveredBy(base, m.at) {
			continue
		}
		shown = append(shown, m)
	}
	if b.Engine.Level() == LevelContainer && b.Image.RootFS != "" && b.Engine.Name != Podman {
		var at []string
		for _, m := range slices.Concat(own, shown) {
			at = append(at, m.at)
		}
		if base, err = splice(b.Image.RootFS, "/", at); err != nil {
			return nil, err
		}
	}
	// What is deeper comes later, so that nothing is hidden by what it lies in.
	slices.SortStableFunc(shown, func(x, y mount) int { return strings.Count(x.at, "/") - strings.Count(y.at, "/") })
	return slices.Concat(base, own, shown), nil
}

// coveredBy says whether a path is seen by way of the base already.
func coveredBy(base []mount, path string) bool {
	for _, m := range base {
		if path == m.at || strings.HasPrefix(path, m.at+"/") {
			return true
		}
	}
	return false
}

// hostBase is what of the machine each sandbox sees: its programs and libraries.
func hostBase() []mount {
	base := []mount{{from: "/usr", at: "/usr"}}
	for _, p := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if to, err := os.Readlink(p); err == nil {
			base = append(base, mount{kind: link, from: to, at: p})
		} else if s, err := os.Stat(p); err == nil && s.IsDir() {
			base = append(base, mount{from: p, at: p})
		}
	}
	return base
}

// HostBase lists the folders of the machine that each sandbox sees.
func HostBase() []string {
	out := []string{"/etc"}
	for _, m := range hostBase() {
		out = append(out, m.at)
	}
	return out
}

// ours are the places in a root file system that are made anew.
var ours = []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/var/run", "/var/tmp"}

// splice shows the entries of a root file system folder around the places where
// something else will stand, so that nothing has to be made in the folder itself.
func splice(rootfs, at string, places []string) ([]mount, error) {
	entries, err := os.ReadDir(filepath.Join(rootfs, at))
	if err != nil {
		return nil, fmt.Errorf("read the root file system %s: %w", rootfs, err)
	}
	var out []mount
	for _, e := range entries {
		p := filepath.Join(at, e.Name())
		if slices.Contains(ours, p) || slices.Contains(places, p) {
			continue
		}
		through := slices.ContainsFunc(places, func(q string) bool { return strings.HasPrefix(q, p+"/") })
		source := filepath.Join(rootfs, p)
		switch {
		case e.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(source)
			if err != nil {
				return nil, fmt.Errorf("read the root file system %s: %w", rootfs, err)
			}
			if through {
				return nil, fmt.Errorf("the root file system %s has a link at %s, so that nothing can be shown below it", rootfs, p)
			}
			out = append(out, mount{kind: link, from: to, at: p})
		case through && e.IsDir():
			below, err := splice(rootfs, p, places)
			if err != nil {
				return nil, err
			}
			out = append(out, below...)
		case through:
			return nil, fmt.Errorf("the root file system %s has a file at %s, so that nothing can be shown below it", rootfs, p)
		case e.IsDir() || e.Type().IsRegular():
			out = append(out, mount{from: source, at: p})
		}
	}
	return out, nil
}

// shownOfEtc are the files and folders of /etc that a sandbox sees. None holds a
// secret; of certificates only the public ones are named.
var shownOfEtc = []string{
	"resolv.conf", "hosts", "host.conf", "gai.conf", "services", "protocols", "networks",
	"localtime", "timezone", "os-release", "debian_version", "redhat-release",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "mime.types",
	"ssl/certs", "ssl/openssl.cnf", "ca-certificates.conf",
	"pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies",
	"python3", "python3.11", "python3.12", "python3.13", "terminfo",
}

// shownOfNetwork are those that a container gets from the machine where it has its
// network, since names must resolve as they do outside.
var shownOfNetwork = []string{"resolv.conf", "hosts"}

// identity makes the files that say who the executor is, and lists what is shown of
// /etc. Programs such as ssh and ansible do not run without an entry for their user,
// and take its home from there.
func (b *Box) identity() ([]mount, error) {
	etc := filepath.Join(b.Dir, "etc")
	if err := os.Mkdir(etc, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make the sandbox's files: %w", err)
	}
	if err := os.Chmod(etc, 0o755); err != nil {
		return nil, fmt.Errorf("make the sandbox's files: %w", err)
	}
	uid, gid := strconv.Itoa(b.UID), strconv.Itoa(b.GID)
	passwd := "executor:x:" + uid + ":" + gid + ":executor:" + b.Home + ":/bin/sh\n"
	group := "executor:x:" + gid + ":\n"
	if b.UID != 0 {
		passwd += "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n"
	}
	if b.GID != 0 {
		group += "root:x:0:\n"
	}
	files := map[string]string{
		"passwd": passwd, "group": group,
		"nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n",
	}
	if b.Network == NetworkNone {
		files["hosts"] = "127.0.0.1 localhost " + hostname + "\n::1 localhost\n"
		files["resolv.conf"] = ""
	}
	var out []mount
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "hosts", "resolv.conf"} {
		text, ok := files[name]
		if !ok {
			continue
		}
		path := filepath.Join(etc, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("make the sandbox's files: %w", err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			return nil, fmt.Errorf("make the sandbox's files: %w", err)
		}
		out = append(out, mount{from: path, at: "/etc/" + name})
	}
	shown := shownOfEtc
	if b.Engine.Level() == LevelContainer {
		shown = shownOfNetwork
	}
	for _, name := range shown {
		path := "/etc/" + name
		if _, own := files[name]; own {
			continue
		}
		if _, err := os.Stat(path); err == nil {
			out = append(out, mount{from: path, at: path})
		}
	}
	return out, nil
}
