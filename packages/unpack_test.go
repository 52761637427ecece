package packages_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"

	"github.com/platform-core/execution-plane-service/packages"
)

// What people pack by hand is taken: GNU tar's "./", git archive's comment, folders
// after their files, long names. Modes are normalised, set-uid bits go, and nobody
// may write.
func TestUnpack(t *testing.T) {
	long := "roles/nginx/files/" + strings.Repeat("n", 110)
	archive := tarOf(t,
		entry{kind: tar.TypeXGlobalHeader, records: map[string]string{"comment": "0123abcd"}},
		folder("./"), file("./package.yaml", manifest+"playbooks: [play/site.yml]\nroles: [nginx]\n"),
		file("play/site.yml", "- hosts: all\n"), folder("play/"),
		executable("roles/nginx/files/run.sh", "#!/bin/sh\n"), file(long, "long"),
		link("play/roles", "../roles"), link("play/again.yml", "site.yml"), file("notes", ""),
	)
	want := "dr-xr-xr-x play\nlink play/again.yml site.yml\nlink play/roles ../roles\n-r--r--r-- play/site.yml - hosts: all\n\n" +
		"dr-xr-xr-x roles\ndr-xr-xr-x roles/nginx\ndr-xr-xr-x roles/nginx/files\n-r--r--r-- " + long + " long\n-r-xr-xr-x roles/nginx/files/run.sh #!/bin/sh\n\n"
	for name, bytesOf := range map[string][]byte{"gzip": gzipped(t, archive), "zstd": zstded(t, archive), "padded": gzipped(t, append(archive, make([]byte, 10240)...))} {
		t.Run(name, func(t *testing.T) {
			dest := destination(t)
			c, err := packages.Unpack(bytes.NewReader(bytesOf), dest, packages.DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			if got := listing(t, dest); !strings.Contains(got, want) {
				t.Errorf("unpacked:\n%s\nwant in it:\n%s", got, want)
			}
			if strings.Join(c.Unlisted, " ") != "notes play/again.yml play/roles" {
				t.Errorf("unlisted %v", c.Unlisted)
			}
			if info, err := os.Stat(dest); err != nil || info.Mode().Perm() != 0o555 {
				t.Errorf("the folder is %v, %v", info.Mode(), err)
			}
			tree, err := packages.TreeDigest(t.Context(), dest, packages.DefaultLimits())
			if err != nil || tree != c.Tree {
				t.Errorf("the tree's digest is %s, %v; it was unpacked as %s", tree, err, c.Tree)
			}
			looked, err := packages.Inspect(bytes.NewReader(bytesOf), packages.DefaultLimits())
			if err != nil || looked.Tree != c.Tree || looked.Bytes != c.Bytes || looked.Manifest.Name != "web-base" {
				t.Errorf("inspected: %+v, %v", looked, err)
			}
		})
	}
}

func TestHostilePackages(t *testing.T) {
	noise := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise[:1<<20]) // it never fails
	many := make([]entry, 300)
	for i := range many {
		many[i] = file(strings.Repeat("x", 1+i/10)+string(rune('0'+i%10)), "")
	}
	bush := []entry{}
	for _, l := range []string{"a b", "b c", "c d", "d e", "e f", "f g", "g h"} {
		from, to, _ := strings.Cut(l, " ")
		bush = append(bush, file(from+"/f", ""), link(from+"/1", "../"+to), link(from+"/2", "../"+to), link(from+"/3", "../"+to))
	}
	bush = append(bush, file("h/f", ""))
	whole := pkg(t)
	for name, tc := range map[string]struct {
		want    packages.Code
		archive []byte
	}{
		"not compressed":         {packages.NotAPackage, tarOf(t, file("package.yaml", manifest))},
		"nothing":                {packages.NotAPackage, nil},
		"a gzip of no tar":       {packages.Broken, gzipped(t, []byte(strings.Repeat("no tar ", 200)))},
		"a gzip of nothing":      {packages.Broken, gzipped(t, nil)},
		"an empty tar":           {packages.Broken, gzipped(t, tarOf(t))},
		"cut off":                {packages.Broken, whole[:len(whole)-9]},
		"a changed checksum":     {packages.Broken, append(append([]byte{}, whole[:len(whole)-8]...), 1, 2, 3, 4, 5, 6, 7, 8)},
		"a short file":           {packages.Broken, gzipped(t, tarOf(t, entry{name: "x", kind: tar.TypeReg, body: "abc", size: 2000}))},
		"bytes behind":           {packages.Broken, append(append([]byte{}, whole...), "more"...)},
		"a second tar":           {packages.TrailingData, gzipped(t, append(tarOf(t, file("package.yaml", manifest)), tarOf(t, file("x", "y"))...))},
		"a second member":        {packages.TrailingData, append(append([]byte{}, whole...), gzipped(t, []byte("x"))...)},
		"a bomb in gzip":         {packages.RatioTooHigh, pkg(t, entry{name: "zeros", kind: tar.TypeReg, body: strings.Repeat("\x00", 20<<20)})},
		"a bomb in zstd":         {packages.RatioTooHigh, zstded(t, tarOf(t, entry{name: "zeros", kind: tar.TypeReg, body: strings.Repeat("\x00", 20<<20)}))},
		"a bomb behind the end":  {packages.RatioTooHigh, gzipped(t, append(tarOf(t, file("package.yaml", manifest)), make([]byte, 20<<20)...))},
		"a large window":         {packages.WindowTooLarge, zstded(t, noise, zstd.WithWindowSize(64<<20))},
		"a large file of it":     {packages.CompressedLarge, pkg(t, entry{name: "noise", kind: tar.TypeReg, body: string(noise[:1<<20]) + string(noise[:1<<20])})},
		"a header of 8 EiB":      {packages.FileTooLarge, gzipped(t, tarOf(t, entry{name: "x", kind: tar.TypeReg, size: 1 << 62, format: tar.FormatPAX}))},
		"a large file":           {packages.FileTooLarge, gzipped(t, tarOf(t, entry{name: "x", kind: tar.TypeReg, size: 33 << 20}))},
		"many entries":           {packages.TooManyEntries, pkg(t, many...)},
		"many folders":           {packages.TooManyEntries, pkg(t, manyFolders()...)},
		"many paths by links":    {packages.TooManyEntries, pkg(t, bush...)},
		"a deep file":            {packages.TooDeep, pkg(t, file("a/b/c/d/e/f", ""))},
		"a long name":            {packages.NameTooLong, pkg(t, file(strings.Repeat("n", 151), ""))},
		"an absolute name":       {packages.NameAbsolute, pkg(t, file("/etc/cron.d/x", "x"))},
		"a name with ..":         {packages.NameParent, pkg(t, file("a/../../x", "x"))},
		"just ..":                {packages.NameParent, pkg(t, folder("../"))},
		"a name with //":         {packages.NameInvalid, pkg(t, file("a//b", "x"))},
		"a name with /./":        {packages.NameInvalid, pkg(t, file("a/./b", "x"))},
		"a file called .":        {packages.NameInvalid, pkg(t, link(".", "x"))},
		"a name in Latin-1":      {packages.NameNotUTF8, pkg(t, entry{name: "caf\xe9", kind: tar.TypeReg, format: tar.FormatGNU})},
		"a line end in a name":   {packages.NameControl, pkg(t, file("a\nb", ""))},
		"an escape in a name":    {packages.NameControl, pkg(t, file("\x1b[31mred", ""))},
		"a name that turns":      {packages.NameControl, pkg(t, file("safe\u202egpj.sh", ""))},
		"a name twice":           {packages.Duplicate, pkg(t, file("a", "1"), file("a", "2"))},
		"the manifest twice":     {packages.Duplicate, pkg(t, file("./package.yaml", "name: other\nversion: 1\n"))},
		"a folder twice":         {packages.Duplicate, pkg(t, folder("a/"), folder("./a"))},
		"upper and lower case":   {packages.CaseCollision, pkg(t, file("Readme", ""), file("README", ""))},
		"case of folders":        {packages.CaseCollision, pkg(t, file("roles/x", ""), file("Roles/y", ""))},
		"case of Kelvin":         {packages.CaseCollision, pkg(t, file("k", ""), file("\u212a", ""))},
		"below a file":           {packages.NameConflict, pkg(t, file("a", ""), file("a/b", ""))},
		"a file above":           {packages.NameConflict, pkg(t, file("a/b", ""), file("a", ""))},
		"below a link":           {packages.NameConflict, pkg(t, folder("d"), link("a", "d"), file("a/b", "through the link"))},
		"a link above":           {packages.NameConflict, pkg(t, file("a/b", ""), link("a", "."))},
		"a hard link":            {packages.HardLink, pkg(t, entry{name: "passwd", link: "/etc/passwd", kind: tar.TypeLink})},
		"a hard link inside":     {packages.HardLink, pkg(t, entry{name: "b", link: "package.yaml", kind: tar.TypeLink})},
		"a device":               {packages.Device, pkg(t, special("null", tar.TypeChar))},
		"a disk":                 {packages.Device, pkg(t, special("sda", tar.TypeBlock))},
		"a fifo":                 {packages.SpecialFile, pkg(t, special("pipe", tar.TypeFifo))},
		"another kind":           {packages.SpecialFile, pkg(t, special("odd", 'Z'))},
		"a sparse file":          {packages.Sparse, gzipped(t, sparse(t))},
		"a header for all":       {packages.Extension, pkg(t, entry{kind: tar.TypeXGlobalHeader, records: map[string]string{"path": "x"}})},
		"a link to /":            {packages.LinkAbsolute, pkg(t, link("etc", "/etc"))},
		"a link out":             {packages.LinkOutside, pkg(t, link("a/out", "../../etc/passwd"))},
		"a link out by a link":   {packages.LinkOutside, pkg(t, folder("d/e"), link("d/up", ".."), link("out", "d/up/.."))},
		"a link out and in":      {packages.LinkOutside, pkg(t, link("out", "../unpacked/package.yaml"))},
		"a link to nothing":      {packages.LinkBroken, pkg(t, link("a", "b"))},
		"a link through a file":  {packages.LinkBroken, pkg(t, link("a", "package.yaml/x"))},
		"a link to itself":       {packages.LinkLoop, pkg(t, link("a", "a"))},
		"two links":              {packages.LinkLoop, pkg(t, link("a", "b"), link("b", "a"))},
		"a link to its folder":   {packages.LinkLoop, pkg(t, file("d/f", ""), link("d/e", "."))},
		"a link to the top":      {packages.LinkLoop, pkg(t, link("d/e", ".."))},
		"folders in a circle":    {packages.LinkLoop, pkg(t, link("a/x", "../b"), link("b/y", "../a"))},
		"a control in a target":  {packages.NameControl, pkg(t, link("a", "b\x07"))},
		"no manifest":            {packages.NoManifest, gzipped(t, tarOf(t, file("site.yml", "")))},
		"a manifest in a folder": {packages.NoManifest, gzipped(t, tarOf(t, file("web/package.yaml", manifest)))},
		"a link as manifest":     {packages.NoManifest, gzipped(t, tarOf(t, file("x", manifest), link("package.yaml", "x")))},
		"a broken manifest":      {packages.ManifestInvalid, gzipped(t, tarOf(t, file("package.yaml", "name: [")))},
		"a huge manifest":        {packages.ManifestInvalid, gzipped(t, tarOf(t, file("package.yaml", manifest+strings.Repeat("# x\n", 66000))))},
		"a playbook not there":   {packages.ListedMissing, gzipped(t, tarOf(t, file("package.yaml", manifest+"playbooks: [site.yml]")))},
		"a folder as playbook":   {packages.ListedMissing, gzipped(t, tarOf(t, file("package.yaml", manifest+"playbooks: [a.yml]"), folder("a.yml")))},
		"a role not there":       {packages.ListedMissing, gzipped(t, tarOf(t, file("package.yaml", manifest+"roles: [nginx]"), file("roles/nginx2/x", "")))},
	} {
		t.Run(name, func(t *testing.T) {
			dest := destination(t)
			_, err := packages.Unpack(bytes.NewReader(tc.archive), dest, tight())
			var refused *packages.Refused
			if !errors.As(err, &refused) || refused.Code != tc.want {
				t.Fatalf("got %v, code %q; want %q", err, packages.CodeOf(err), tc.want)
			}
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' && r != '\n' || r == 0x202e }) || len(err.Error()) > 600 {
				t.Errorf("the text may not be shown: %q", err.Error())
			}
			beside, lerr := os.ReadDir(filepath.Dir(dest))
			if lerr != nil || len(beside) > 0 {
				t.Errorf("left behind: %v, %v", beside, lerr)
			}
			if _, err := packages.Inspect(bytes.NewReader(tc.archive), tight()); packages.CodeOf(err) != tc.want {
				t.Errorf("inspected: %v", err)
			}
		})
	}
}

func manyFolders() []entry {
	var out []entry
	for i := range 60 {
		out = append(out, file(strings.Repeat(string(rune('a'+i%26)), 1+i/26)+"/a/b/c", ""))
	}
	return out
}

// sparse is what GNU tar makes of a file of 1 TiB of nothing.
func sparse(t *testing.T) []byte {
	t.Helper()
	b := tarOf(t, file("package.yaml", manifest), entry{name: "hole", kind: tar.TypeReg, format: tar.FormatGNU})
	h := b[1024:1536]
	h[156] = tar.TypeGNUSparse
	copy(h[483:], "\x80\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00") // the real size, in base 256
	copy(h[148:156], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return b
}

// A bomb is noticed before it has cost much: memory, and bytes read.
func TestBombStopsEarly(t *testing.T) {
	zeros := func(w io.Writer, n int64) error {
		_, err := io.Copy(w, io.LimitReader(zeroes{}, n))
		return err
	}
	var archive bytes.Buffer
	z, err := zstd.NewWriter(&archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	const size = 160 << 20
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Size: size}), zeros(w, size), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	l := packages.DefaultLimits()
	l.Size, l.File = 2<<30, 2<<30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	dest := destination(t)
	_, err = packages.Unpack(&archive, dest, l)
	runtime.ReadMemStats(&after)
	if packages.CodeOf(err) != packages.RatioTooHigh {
		t.Fatal(err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 96<<20 {
		t.Errorf("%d bytes of memory were taken", grown)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// The reader's own error and the disk's are no refusals of the package.
func TestForeignErrors(t *testing.T) {
	away := errors.New("the reader is away")
	whole := pkg(t, file("a", strings.Repeat("abc", 1000)))
	for _, n := range []int{0, 1, 20, len(whole) / 2, len(whole) - 1} {
		dest := destination(t)
		_, err := packages.Unpack(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(away)), dest, tight())
		if !errors.Is(err, away) || packages.CodeOf(err) != "" {
			t.Errorf("after %d bytes: %v", n, err)
		}
		if _, err := os.Stat(dest); !os.IsNotExist(err) {
			t.Errorf("after %d bytes something is left: %v", n, err)
		}
	}
	dest := destination(t)
	if err := os.Mkdir(dest, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := packages.Unpack(bytes.NewReader(whole), dest, tight()); !os.IsExist(errors.Unwrap(err)) && !errors.Is(err, os.ErrExist) {
		t.Errorf("into a folder that is there: %v", err)
	}
	if _, err := os.Stat(dest); err != nil {
		t.Errorf("it was removed: %v", err)
	}
}

// Whatever is done to an unpacked package shows.
func TestTreeDigestShowsChanges(t *testing.T) {
	archive := pkg(t, file("a/f", "content"), file("a/g", "content"), link("l", "a/f"), executable("x", "y"))
	chmod := func(path string, mode os.FileMode) func(string) error {
		return func(dir string) error { return os.Chmod(filepath.Join(dir, path), mode) }
	}
	write := func(path, text string) func(string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, path), []byte(text), 0o444) }
	}
	for name, change := range map[string]func(dir string) error{
		"content":    write("a/f", "kontent"),
		"longer":     write("a/f", "content and more"),
		"one more":   write("a/more", ""),
		"mode":       chmod("a/f", 0o644),
		"set-uid":    chmod("x", 0o555|os.ModeSetuid),
		"executable": chmod("a/f", 0o555),
		"folder":     chmod("a", 0o755),
		"top":        chmod(".", 0o755),
		"removed":    func(dir string) error { return os.Remove(filepath.Join(dir, "a/f")) },
		"renamed": func(dir string) error {
			return errors.Join(os.Rename(filepath.Join(dir, "a/f"), filepath.Join(dir, "a/h")), os.Chmod(filepath.Join(dir, "a/h"), 0o444))
		},
		"nothing":      func(string) error { return nil },
		"empty folder": func(dir string) error { return os.Mkdir(filepath.Join(dir, "e"), 0o555) },
		"other link": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "l")), os.Symlink("a/g", filepath.Join(dir, "l")))
		},
		"link for file": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a/f")), os.Symlink("g", filepath.Join(dir, "a/f")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dest := destination(t)
			c, err := packages.Unpack(bytes.NewReader(archive), dest, tight())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{dest, filepath.Join(dest, "a"), filepath.Join(dest, "a/f")} {
				if err := os.Chmod(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := change(dest); err != nil {
				t.Fatal(err)
			}
			if name != "top" {
				_ = os.Chmod(dest, 0o555)
			}
			if name != "folder" {
				_ = os.Chmod(filepath.Join(dest, "a"), 0o555)
			}
			if _, err := os.Lstat(filepath.Join(dest, "a/f")); err == nil && name != "mode" && name != "executable" && name != "link for file" {
				_ = os.Chmod(filepath.Join(dest, "a/f"), 0o444)
			}
			tree, err := packages.TreeDigest(t.Context(), dest, tight())
			if same := err == nil && tree == c.Tree; same != (name == "nothing") {
				t.Errorf("it shows as a change: %v", !same)
			}
			if err != nil && !errors.Is(err, packages.ErrChanged) {
				t.Error(err)
			}
		})
	}
}
