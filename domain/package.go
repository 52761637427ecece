package domain

import (
	"fmt"
	"time"
)

// PackageStateVersion numbers the shape of Package as stored in a head.
const PackageStateVersion = 1

// Package is the folded state of package/<sha256>: a package of playbooks whose bytes
// are in object storage. Whether a job may use it is policy's to say.
type Package struct {
	PackagePushed
}

// PackagePushed is issued when a package's bytes are durable and were looked at.
type PackagePushed struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// EventType is the stored name.
func (PackagePushed) EventType() string { return "execution.package.pushed" }

// PushPackage records a package.
type PushPackage struct{ Pushed PackagePushed }

// DecidePackage answers a push: a digest has one content, so that again is no change.
func DecidePackage(p Package, c PushPackage, _ time.Time) ([]Event, error) {
	if p.SHA256 != "" {
		return nil, nil
	}
	return []Event{c.Pushed}, nil
}

// EvolvePackage folds one event into a package's state.
func EvolvePackage(p Package, e Event, _ time.Time) (Package, error) {
	if e, ok := e.(PackagePushed); ok {
		return Package{e}, nil
	}
	return p, fmt.Errorf("event %s does not belong to a package", e.EventType())
}
