package policy

import (
	"embed"
	"fmt"
	"io/fs"
	"sync"
)

//go:embed builtin/*.yaml
var builtinFiles embed.FS

//go:embed dev/*.yaml
var devFiles embed.FS

//go:embed local/*.yaml
var localFiles embed.FS

var builtin = sync.OnceValue(func() *Bundle {
	b, err := Load(sub(builtinFiles, "builtin"))
	if err != nil {
		panic("policy: the built-in bundle does not load: " + err.Error())
	}
	return b
})

var builtinDev = sync.OnceValue(func() *Bundle {
	b, err := Overlay(builtin(), sub(devFiles, "dev"))
	if err != nil {
		panic("policy: the development bundle does not load: " + err.Error())
	}
	return b
})

var builtinLocal = sync.OnceValue(func() *Bundle {
	b, err := Overlay(builtinDev(), sub(localFiles, "local"))
	if err != nil {
		panic("policy: the bundle of one machine does not load: " + err.Error())
	}
	return b
})

// Builtin is the bundle of an installation without one of its own. It allows
// no target and maps no secret.
func Builtin() *Bundle { return builtin() }

// BuiltinDev is Builtin with the loopback addresses as targets of the
// environments dev, demo and test, and with what lies under secret/dev/ of a Vault
// for them. It is for `serve --dev`, the demo and tests.
func BuiltinDev() *Bundle { return builtinDev() }

// BuiltinLocal is BuiltinDev with the examples' package for the machine itself. It is
// for a service whose runners are of the same build, as `serve --dev` and the demo
// are: one of an older release cannot read all of its rule kinds.
func BuiltinLocal() *Bundle { return builtinLocal() }

func sub(fsys fs.FS, dir string) fs.FS {
	s, err := fs.Sub(fsys, dir)
	if err != nil {
		panic(fmt.Sprintf("policy: embedded folder %s: %v", dir, err))
	}
	return s
}
