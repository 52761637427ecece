package packages

import (
	"cmp"
	"slices"
)

// Kind is what an entry is.
type Kind string

// The kinds.
const (
	File   Kind = "file"
	Folder Kind = "folder"
	Link   Kind = "link"
)

// Entry is one thing in a package.
type Entry struct {
	Name       string `json:"name"` // relative, with slashes
	Kind       Kind   `json:"kind"`
	Bytes      int64  `json:"bytes,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	SHA256     string `json:"sha256,omitempty"` // of a file, in hex
	Target     string `json:"target,omitempty"` // of a link, as it stands there

	// named: the archive has an entry for it; a folder may be implied only.
	named bool
}

// index holds the entries of one package by name.
type index struct {
	limit   Limits
	entries map[string]*Entry
	folded  map[string]string
}

func newIndex(l Limits) *index {
	return &index{limit: l, entries: map[string]*Entry{}, folded: map[string]string{}}
}

// add takes one entry and gives the folders that are new with it, itself included
// if it is one, the outermost first.
func (x *index) add(e *Entry) (folders []string, err error) {
	for _, parent := range parents(e.Name) {
		switch p := x.entries[parent]; {
		case p == nil:
			if err := x.put(&Entry{Name: parent, Kind: Folder}); err != nil {
				return nil, err
			}
			folders = append(folders, parent)
		case p.Kind != Folder:
			return nil, refuseEntry(NameConflict, e.Name, "it lies below %s, which is a %s", shown(parent), p.Kind)
		}
	}
	e.named = true
	switch had := x.entries[e.Name]; {
	case had == nil:
		if e.Kind == Folder {
			folders = append(folders, e.Name)
		}
		return folders, x.put(e)
	case had.Kind == Folder && e.Kind == Folder && !had.named:
		had.named = true
		return folders, nil
	case had.Kind != e.Kind && !had.named:
		return nil, refuseEntry(NameConflict, e.Name, "it is a %s, and other entries lie below it", e.Kind)
	}
	return nil, refuseEntry(Duplicate, e.Name, "two entries have this name")
}

func (x *index) put(e *Entry) error {
	if len(x.entries) >= x.limit.Entries {
		return refuse(TooManyEntries, "it has more than %d entries", x.limit.Entries)
	}
	key := fold(e.Name)
	if other, ok := x.folded[key]; ok {
		return refuseEntry(CaseCollision, e.Name, "it differs from %s in upper and lower case only", shown(other))
	}
	x.folded[key] = e.Name
	x.entries[e.Name] = e
	return nil
}

// sorted gives all entries by name.
func (x *index) sorted() []Entry {
	out := make([]Entry, 0, len(x.entries))
	for _, e := range x.entries {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
