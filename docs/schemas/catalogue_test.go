package schemas_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// catalogue is what docs/events.md says of events, and of shapes that several share.
type catalogue struct {
	events map[string]section
	shared map[string]section
}

// section is one heading of the catalogue.
type section struct {
	stream string // "attempt/<attempt_id>"
	about  string // when it is issued
	see    string // the shared shape that its payload is; "" for none
	rows   []row
}

// row is one line of a table: one field, or several that mean the same.
type row struct {
	fields  []string
	meaning string
}

var (
	head      = regexp.MustCompile("(?m)^Schema \\d+ · stream `([^`]+)`\n")
	line      = regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| (.*) \\|$")
	seeLink   = regexp.MustCompile(`see \[(\w+)\]\(#`)
	payloadIs = regexp.MustCompile(`(?m)^Payload: see \[(\w+)\]`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	ticked    = regexp.MustCompile("`([a-z0-9][a-z0-9_-]*)`")
)

func readCatalogue(t *testing.T) catalogue {
	t.Helper()
	raw, err := os.ReadFile("../events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(raw), "\n## Catalogue\n")
	events, shared, ok2 := strings.Cut(page, "\n## Shared shapes\n")
	if !ok || !ok2 {
		t.Fatal("docs/events.md has no catalogue or no shared shapes")
	}
	shared, _, _ = strings.Cut(shared, "\n## ")
	events, _, _ = strings.Cut(events, "\n## ")
	c := catalogue{events: sections(events), shared: sections(shared)}
	if len(c.events) == 0 || len(c.shared) == 0 {
		t.Fatal("the catalogue of docs/events.md is empty")
	}
	return c
}

func sections(page string) map[string]section {
	out := map[string]section{}
	for _, part := range strings.Split(page, "\n### ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		var s section
		text = strings.TrimSpace(text) + "\n"
		if m := head.FindStringSubmatch(text); m != nil {
			s.stream, text = m[1], strings.TrimSpace(text[len(m[0]):])
		}
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			r := row{meaning: m[2]}
			for _, f := range ticked.FindAllStringSubmatch(m[1], -1) {
				r.fields = append(r.fields, f[1])
			}
			s.rows = append(s.rows, r)
		}
		if m := payloadIs.FindStringSubmatch(text); m != nil {
			s.see = m[1]
		}
		for _, end := range []string{"\n|", "```", "\nPayload: see", "\nNo payload fields"} {
			text, _, _ = strings.Cut("\n"+text, end)
			text = strings.TrimSpace(text)
		}
		s.about = text
		out[strings.Trim(title, "`")] = s
	}
	return out
}

// row finds the line that describes a field, in the section's own table or in one
// that the section points at.
func (c catalogue) row(s section, name string) (row, bool) {
	for _, r := range append(s.rows, c.shared[s.see].rows...) {
		for _, f := range r.fields {
			if f == name {
				return r, true
			}
		}
	}
	return row{}, false
}

// plain takes the links out of a text.
func plain(text string) string { return linkText.ReplaceAllString(text, "$1") }

// words are the values that a text names.
func words(text string) []string {
	var out []string
	for _, m := range ticked.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}
