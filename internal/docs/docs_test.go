package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

const root = "../.."

// skipped folders hold nothing of the project's own words.
var skipped = []string{".git", "bin", "dist", "testdata"}

// pages gives every Markdown file by its path from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(skipped, d.Name()) {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			out[rel] = readFile(t, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	fence    = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
)

// prose is a page without code, where brackets are no links.
func prose(page string) string {
	return codeSpan.ReplaceAllString(fence.ReplaceAllString(page, ""), "")
}

// anchors gives the page's headings as GitHub makes anchors of them.
func anchors(page string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		var b strings.Builder
		for _, c := range strings.ToLower(m[1]) {
			switch {
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '-', c == '_':
				b.WriteRune(c)
			case c == ' ':
				b.WriteByte('-')
			}
		}
		out = append(out, b.String())
	}
	return out
}

func TestLinksResolve(t *testing.T) {
	all := pages(t)
	links := 0
	for name, page := range all {
		for _, m := range link.FindAllStringSubmatch(prose(page), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			links++
			target := name
			if to != "" {
				target = filepath.Join(filepath.Dir(name), to)
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s links to %s, which is not there", name, m[1])
					continue
				}
			}
			if anchor != "" && !slices.Contains(anchors(all[target]), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", name, m[1], target)
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found; the search is broken", links)
	}
}

var (
	variable = regexp.MustCompile(`EXECUTION_PLANE_[A-Z0-9_]*[A-Z0-9]`)
	metric   = regexp.MustCompile(`\beps_[a-z_]*[a-z]`)
)

// named gives each match once, sorted.
func named(re *regexp.Regexp, texts ...string) []string {
	var out []string
	for _, text := range texts {
		out = append(out, re.FindAllString(text, -1)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sources gives the Go files of a folder, tests apart.
func sources(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files in %s: %v", dir, err)
	}
	var out []string
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			rel, _ := filepath.Rel(root, f) // both begin with root
			out = append(out, readFile(t, rel))
		}
	}
	return out
}

func TestEnvironmentVariables(t *testing.T) {
	known := named(variable, sources(t, "cmd/execution-plane")...)
	compare(t, "the command line", known, "docs/operations.md", named(variable, readFile(t, "docs/operations.md")))
	for _, page := range []string{"docker-compose.yml", "README.md"} {
		for _, v := range named(variable, readFile(t, page)) {
			if !slices.Contains(known, v) {
				t.Errorf("%s names %s, which the command line does not know", page, v)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	known := named(metric, slices.Concat(sources(t, "api"), sources(t, "internal/plane"), sources(t, "forwarder"), sources(t, "callbacks"))...)
	compare(t, "the service", known, "docs/operations.md", named(metric, readFile(t, "docs/operations.md")))
}

func compare(t *testing.T, one string, a []string, other string, b []string) {
	t.Helper()
	if len(a) == 0 {
		t.Fatalf("%s names nothing; the search is broken", one)
	}
	for _, x := range a {
		if !slices.Contains(b, x) {
			t.Errorf("%s knows %s, %s does not name it", one, x, other)
		}
	}
	for _, x := range b {
		if !slices.Contains(a, x) {
			t.Errorf("%s names %s, %s does not know it", other, x, one)
		}
	}
}

// TestFlags holds the tables of serve and runner to the flags there are.
func TestFlags(t *testing.T) {
	page := readFile(t, "docs/operations.md")
	for file, structs := range map[string][]string{"serve.go": {"serveCmd"}, "runner.go": {"runnerRunCmd"}, "kafka.go": {"kafkaFlags"}, "main.go": {"Global"}} {
		for _, flag := range flags(t, file, structs) {
			if flag != "output" && !strings.Contains(page, "`--"+flag) && !strings.Contains(page, "`--no-"+flag) {
				t.Errorf("docs/operations.md does not name --%s of %s", flag, file)
			}
		}
	}
}

var upper = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// flags reads the flags of command structs from their tags, else their names.
func flags(t *testing.T, file string, structs []string) (out []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "cmd/execution-plane", file), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !slices.Contains(structs, spec.Name.Name) {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			if len(f.Names) == 0 || f.Tag == nil {
				continue
			}
			raw, _ := strconv.Unquote(f.Tag.Value) // the parser took it
			tag := reflect.StructTag(raw)
			name := tag.Get("name")
			if name == "" {
				name = strings.ToLower(upper.ReplaceAllString(f.Names[0].Name, "$1-$2"))
			}
			out = append(out, name)
		}
		return false
	})
	if len(out) == 0 {
		t.Fatalf("no flags found in %s; the search is broken", file)
	}
	return out
}

func TestFolderMap(t *testing.T) {
	readme := readFile(t, "README.md")
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || slices.Contains(skipped, e.Name()) {
			continue
		}
		if !strings.Contains(readme, "\n| `"+e.Name()+"/` |") {
			t.Errorf("the map of folders in README.md lacks %s/", e.Name())
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)/` \\|").FindAllStringSubmatch(readme, -1) {
		if info, err := os.Stat(filepath.Join(root, m[1])); err != nil || !info.IsDir() {
			t.Errorf("README.md maps %s/, which is not there", m[1])
		}
	}
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// TestNamedTestsExist holds CONTRIBUTING.md to the tests it sends people to.
func TestNamedTestsExist(t *testing.T) {
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(skipped, d.Name()) {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			all.Write(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	found := testName.FindAllStringSubmatch(readFile(t, "CONTRIBUTING.md"), -1)
	for _, m := range found {
		if !strings.Contains(all.String(), "func "+m[1]+"(") {
			t.Errorf("CONTRIBUTING.md names %s, which is not there", m[1])
		}
	}
	if len(found) < 10 {
		t.Errorf("only %d tests were found in CONTRIBUTING.md; the search is broken", len(found))
	}
}
