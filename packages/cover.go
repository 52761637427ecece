package packages

import (
	"slices"
	"strings"
)

// folderOfRole and folderOfCollection say where a package has them.
func folderOfRole(name string) string { return "roles/" + name }

func folderOfCollection(name string) string {
	return "collections/ansible_collections/" + strings.ReplaceAll(name, ".", "/")
}

// checkListed makes sure that all that a manifest lists is there, as what it is
// listed.
func (x *index) checkListed(m Manifest) error {
	var missing []string
	need := func(what, name string, kinds ...Kind) {
		kind := Kind("")
		if e := x.entries[name]; e != nil {
			kind = e.Kind
			if kind == Link {
				// It resolves: links were looked at before.
				to, _ := x.resolve(name)
				kind = Folder
				if t := x.entries[to]; t != nil {
					kind = t.Kind
				}
			}
		}
		switch {
		case kind == "":
			missing = append(missing, what+" "+shown(name)+" is listed and not in the package")
		case !slices.Contains(kinds, kind):
			missing = append(missing, what+" "+shown(name)+" is a "+string(kind))
		}
	}
	for _, p := range m.Playbooks {
		need("playbook", p, File)
	}
	for _, r := range m.Roles {
		need("role", folderOfRole(r), Folder)
	}
	for _, c := range m.Collections {
		need("collection", folderOfCollection(c), Folder)
	}
	for _, f := range m.Files {
		need("file", f, File, Folder)
	}
	if len(missing) == 0 {
		return nil
	}
	if more := len(missing) - 10; more > 0 {
		missing = append(missing[:10], "and more")
	}
	return refuse(ListedMissing, "%s: %s", ManifestName, strings.Join(missing, "; "))
}

// unlisted names the files and links that a manifest does not cover, sorted.
func (x *index) unlisted(m Manifest) []string {
	covered := map[string]bool{ManifestName: true}
	for _, names := range [][]string{m.Playbooks, m.Files} {
		for _, name := range names {
			covered[name] = true
		}
	}
	for _, r := range m.Roles {
		covered[folderOfRole(r)] = true
	}
	for _, c := range m.Collections {
		covered[folderOfCollection(c)] = true
	}
	var out []string
	for name, e := range x.entries {
		if e.Kind != Folder && !covered[name] && !slices.ContainsFunc(parents(name), func(p string) bool { return covered[p] }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
