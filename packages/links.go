package packages

import (
	"path"
	"slices"
	"strings"
)

// checkTarget looks at a link's target as it stands there. Where it leads is
// known only when all entries are.
func checkTarget(name, target string, l Limits) error {
	switch {
	case target == "":
		return refuseEntry(LinkBroken, name, "the link leads nowhere")
	case len(target) > l.Name:
		return refuseEntry(NameTooLong, name, "the link's target has %d bytes, %d are the most", len(target), l.Name)
	case strings.HasPrefix(target, "/"):
		return refuseEntry(LinkAbsolute, name, "the link's target %s is absolute", shown(target))
	}
	if err := checkText(target, "link's target"); err != nil {
		return err
	}
	return nil
}

// checkLinks makes sure that every link leads to a file or folder of the package,
// and that who follows links comes to an end before long.
func (x *index) checkLinks() error {
	leads := map[string]string{}
	for _, name := range x.names(Link) {
		to, err := x.resolve(name)
		if err != nil {
			return err
		}
		leads[name] = to
	}
	if len(leads) == 0 {
		return nil
	}
	w := walker{leads: leads, below: map[string][]string{}, paths: map[string]int{}, most: x.limit.Entries}
	for name, e := range x.entries {
		parent := path.Dir(name)
		if parent == "." {
			parent = ""
		}
		w.below[parent] = append(w.below[parent], name)
		if e.Kind == Folder && w.below[name] == nil {
			w.below[name] = []string{}
		}
	}
	for _, names := range w.below {
		slices.Sort(names) // the same mistake is told each time
	}
	_, err := w.count("")
	return err
}

func (x *index) names(k Kind) []string {
	var out []string
	for name, e := range x.entries {
		if e.Kind == k {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// resolve gives the file or folder that a link leads to, as the kernel would find
// it; "" is the package's own folder.
func (x *index) resolve(link string) (string, error) {
	at := strings.Split(link, "/")
	at = at[:len(at)-1] // nothing lies below a link, so these are folders
	todo := strings.Split(x.entries[link].Target, "/")
	kind := Folder
	for hops := 0; len(todo) > 0; {
		next := todo[0]
		todo = todo[1:]
		if kind != Folder {
			return "", refuseEntry(LinkBroken, link, "the link leads through %s, which is a file", shown(strings.Join(at, "/")))
		}
		switch next {
		case "", ".":
			continue
		case "..":
			if len(at) == 0 {
				return "", refuseEntry(LinkOutside, link, "the link leads out of the package")
			}
			at = at[:len(at)-1]
			continue
		}
		at = append(slices.Clip(at), next)
		e := x.entries[strings.Join(at, "/")]
		switch {
		case e == nil:
			return "", refuseEntry(LinkBroken, link, "the link leads to %s, which is not in the package", shown(strings.Join(at, "/")))
		case e.Kind == Link:
			if hops++; hops > maxHops {
				return "", refuseEntry(LinkLoop, link, "the link leads over more than %d others", maxHops)
			}
			at = at[:len(at)-1]
			todo = append(strings.Split(e.Target, "/"), todo...)
		default:
			kind = e.Kind
		}
	}
	return strings.Join(at, "/"), nil
}

// walker counts the paths that one finds who follows every link.
type walker struct {
	leads map[string]string   // a link to what it leads to
	below map[string][]string // a folder's entries
	paths map[string]int      // of a folder; -1 while it is looked at
	most  int
}

func (w *walker) count(folder string) (int, error) {
	if n, ok := w.paths[folder]; ok {
		return n, nil
	}
	w.paths[folder] = -1
	total := 0
	for _, name := range w.below[folder] {
		to, link := w.leads[name]
		if !link {
			to = name
		}
		total++
		if _, isFolder := w.below[to]; isFolder {
			n, err := w.count(to)
			if err != nil {
				return 0, err
			}
			if n < 0 {
				return 0, refuseEntry(LinkLoop, name, "links lead in a circle here")
			}
			total += n
		}
		if total > w.most {
			return 0, refuse(TooManyEntries, "by its links it has more than %d paths", w.most)
		}
	}
	w.paths[folder] = total
	return total, nil
}
