package policy

import (
	"regexp"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

func (d *document) readIsolation(n ast.Node, b *Bundle) {
	r := isolationRule{Network: "host"}
	var image ast.Node
	before := len(d.mistakes)
	d.object(n, "isolation", fields{
		"id":           func(v ast.Node) { r.Rule = d.ruleID(v) },
		"actions":      func(v ast.Node) { r.Actions = d.nonEmpty(v, "isolation.actions") },
		"environments": func(v ast.Node) { r.Environments = d.nonEmpty(v, "isolation.environments") },
		"at_least":     func(v ast.Node) { r.AtLeast = d.oneOf(v, "isolation.at_least", isolations) },
		"network":      func(v ast.Node) { r.Network = d.oneOf(v, "isolation.network", []string{"host", "none"}) },
		"image":        func(v ast.Node) { image = v; r.Image = d.name(v, "isolation.image") },
	}, "actions", "environments", "at_least")
	if image != nil && r.Image != "" {
		b.late.refer(d.file, lineOf(image), "image", r.Image, "isolation.image names %q, and images of no file has it")
	}
	if len(d.mistakes) > before {
		return
	}
	if r.AtLeast == "container" && r.Image == "" {
		d.fail(n, "isolation: a container needs an image")
		return
	}
	if r.Rule == "" {
		r.Rule = "isolation/" + strconv.Itoa(len(b.isolation)+1)
	}
	if d.addRule(n, b, "isolation", r.Rule, nil) {
		b.isolation = append(b.isolation, r)
	}
}

var (
	imageDigest    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	imageReference = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*(:[0-9]{1,5})?(/[a-z0-9][a-z0-9._-]*)*$`)
	folderName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
)

func (d *document) readImage(n ast.Node, b *Bundle) {
	i := Image{}
	before := len(d.mistakes)
	d.object(n, "image", fields{
		"name": func(v ast.Node) { i.Name = d.name(v, "image.name") },
		"digest": func(v ast.Node) {
			i.Digest = d.matching(v, "image.digest", imageDigest, "sha256: and 64 lower-case hexadecimal digits")
		},
		"reference": func(v ast.Node) {
			i.Reference = d.matching(v, "image.reference", imageReference, "registry/name without tag and digest")
		},
		"rootfs": func(v ast.Node) {
			i.RootFS = d.matching(v, "image.rootfs", folderName, "the name that runners know the folder by: letters, digits and . _ -")
		},
	}, "name")
	b.late.named("image", i.Name)
	if len(d.mistakes) > before {
		return
	}
	switch {
	case (i.Digest == "") != (i.Reference == ""):
		d.fail(n, "image %q: digest and reference belong together", i.Name)
		return
	case i.Digest == "" && i.RootFS == "":
		d.fail(n, "image %q: name digest and reference, or rootfs, or all of them", i.Name)
		return
	}
	if _, ok := b.images[i.Name]; ok {
		d.fail(n, "image %q is defined twice", i.Name)
		return
	}
	i.Rule = "images/" + i.Name
	if d.addRule(n, b, "images", i.Rule, nil) {
		b.images[i.Name] = i
	}
}
