package policy

import (
	"io/fs"
	"slices"
	"strings"
)

// FileGrant says where a file may be put or got.
type FileGrant struct {
	Rule     string
	Name     string
	Root     string // absolute, on the host; the path is relative to it
	MaxBytes int64
	Mode     fs.FileMode // permissions of a file that is put
}

// FileGrant decides on in.Use.File as Decide does. The grant is empty unless the
// verdict allows. That the path stays below the root is a check of its text: who
// follows it on a host must not leave the root by a link.
func (b *Bundle) FileGrant(in Input) (FileGrant, Verdict) {
	d, in := b.judge(in)
	var g FileGrant
	if in.Use == nil || in.Use.File == nil {
		d.deny(CodeFileNotAllowed, "the job names no file")
	} else if set := b.commandSet(d, in, CodeFileNotAllowed); set != nil {
		g = b.decideFile(d, set, *in.Use.File)
	}
	v := d.verdict(b, "file", in)
	if !v.Allow {
		g = FileGrant{}
	}
	return g, v
}

func (b *Bundle) decideFile(d *decision, set *CommandSet, use FileUse) FileGrant {
	d.begin()
	r, ok := set.files[use.Name]
	if !ok {
		d.refuse(CodeFileNotAllowed, "command set %q has no file %q", set.Name, clip(use.Name))
		return FileGrant{}
	}
	if !slices.Contains(r.Directions, use.Direction) {
		d.skip(r.Rule, "it does not allow %s", clip(use.Direction))
		d.refuse(CodeFileNotAllowed, "file %q does not allow %s", r.Name, clip(use.Direction))
		return FileGrant{}
	}
	if !d.meets(r.Rule, r.When) {
		d.refuse(CodeFileNotAllowed, "file %q is not for this job", r.Name)
		return FileGrant{}
	}
	_, err := joinBelow(r.Root, use.Path)
	if err != nil || strings.HasPrefix(use.Path, "/") {
		why := "it is absolute, and must be relative to the root"
		if err != nil {
			why = err.Error()
		}
		d.skip(r.Rule, "the path cannot be used: %s", why)
		d.refuse(CodeFileNotAllowed, "the path below the root of file %q cannot be used: %s", r.Name, why)
		return FileGrant{}
	}
	d.allow(r.Rule)
	return FileGrant{Rule: r.Rule, Name: r.Name, Root: r.Root, MaxBytes: r.MaxBytes, Mode: r.Mode}
}
