package lintrules_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/platform-core/execution-plane-service"

// foreign are stand-ins for libraries: rules read import paths only.
var foreign = map[string][]string{
	"github.com/google/uuid":             {""},
	"github.com/google/go-cmp":           {"cmp"},
	"github.com/gorilla/mux":             {""},
	"github.com/hashicorp/vault/api":     {""},
	"github.com/jackc/pgx/v5":            {"", "pgconn", "pgxpool"},
	"github.com/minio/minio-go/v7":       {""},
	"github.com/ThreeDotsLabs/watermill": {""},
	"github.com/IBM/sarama":              {""},
	"github.com/stretchr/testify":        {"require"},
	"go.uber.org/goleak":                 {""},
}

// own are the packages that planted files may import.
var own = []string{
	"agent", "agent/executor", "api", "api/client", "api/wire", "artifacts", "bundle", "callbacks", "cmd/execution-plane",
	"commands", "dispatch", "domain", "eventstore", "eventstore/postgres", "forwarder", "internal/pgembed", "internal/pgtest",
	"internal/proctest", "internal/strictjson", "ledger", "masker", "migrations", "policy", "projections", "runners", "runners/ansible",
	"runners/helm", "runners/kubernetes", "runners/opentofu", "runners/ssh", "runners/verification", "vault",
}

// A plant is one file with one import. Paths within the module begin with a dot.
type plant struct {
	in, imports string
	test        bool
	allowed     bool
	direct      bool // in the folder itself, not in one below it
}

func plants() []plant {
	all := []plant{
		{in: "domain", imports: "./eventstore"},
		{in: "domain", imports: "./policy"},
		{in: "domain", imports: "./internal/strictjson"},
		{in: "domain", imports: "math/rand"},
		{in: "domain", imports: "math/rand/v2"},
		{in: "domain", imports: "crypto/rand"},
		{in: "domain", imports: "net/http"},
		{in: "domain", imports: "os"},
		{in: "domain", imports: "github.com/jackc/pgx/v5"},
		{in: "domain", imports: "./bundle", allowed: true},
		{in: "domain", imports: "github.com/google/uuid", allowed: true},
		{in: "domain", imports: "encoding/json", allowed: true},
		{in: "bundle", imports: "./domain"},
		{in: "masker", imports: "./bundle"},
		{in: "policy", imports: "./eventstore"},
		{in: "policy", imports: "./domain", allowed: true},
		{in: "eventstore", imports: "./projections"},
		{in: "eventstore", imports: "github.com/jackc/pgx/v5"},
		{in: "eventstore/postgres", imports: "github.com/jackc/pgx/v5", allowed: true},
		{in: "eventstore/postgres", imports: "./commands"},
		{in: "projections", imports: "./commands"},
		{in: "projections", imports: "./eventstore", allowed: true},
		{in: "projections", imports: "github.com/jackc/pgx/v5", allowed: true},
		{in: "commands", imports: "./dispatch"},
		{in: "commands", imports: "./projections", allowed: true},
		{in: "commands", imports: "github.com/jackc/pgx/v5/pgxpool"},
		{in: "commands", imports: "database/sql"},
		{in: "api", imports: "./agent"},
		{in: "api", imports: "./cmd/execution-plane"},
		{in: "api", imports: "./runners/ssh"},
		{in: "api", imports: "./vault"},
		{in: "api", imports: "./dispatch", allowed: true},
		{in: "api", imports: "github.com/gorilla/mux", allowed: true, direct: true},
		{in: "api", imports: "github.com/gorilla/mux"},
		{in: "api/client", imports: "github.com/gorilla/mux"},
		{in: "api/client", imports: "./commands"},
		{in: "api/client", imports: "./api"},
		{in: "api/client", imports: "./api/wire", allowed: true},
		{in: "api/wire", imports: "./eventstore"},
		{in: "agent", imports: "./api"},
		{in: "agent", imports: "./api/client", allowed: true},
		{in: "agent", imports: "./vault", allowed: true},
		{in: "agent", imports: "./runners/ssh"},
		{in: "vault", imports: "github.com/hashicorp/vault/api", allowed: true},
		{in: "vault", imports: "./agent"},
		{in: "artifacts", imports: "github.com/minio/minio-go/v7", allowed: true},
		{in: "forwarder", imports: "github.com/ThreeDotsLabs/watermill", allowed: true},
		{in: "callbacks", imports: "github.com/ThreeDotsLabs/watermill"},
		{in: "forwarder", imports: "github.com/IBM/sarama", allowed: true},
		{in: "callbacks", imports: "github.com/IBM/sarama"},
		{in: "ledger", imports: "./internal/pgtest"},
		{in: "ledger", imports: "./internal/pgtest", test: true, allowed: true},
		{in: "ledger", imports: "./internal/proctest"},
		{in: "ledger", imports: "github.com/google/go-cmp/cmp"},
		{in: "ledger", imports: "github.com/google/go-cmp/cmp", test: true, allowed: true},
		{in: "ledger", imports: "go.uber.org/goleak"},
		{in: "ledger", imports: "testing"},
		{in: "ledger", imports: "github.com/stretchr/testify/require", test: true},
		{in: "internal/pgtest", imports: "./internal/proctest", allowed: true},
		{in: "internal/pgtest", imports: "github.com/jackc/pgx/v5", allowed: true},
		{in: "runners", imports: "./eventstore", direct: true},
		{in: "runners", imports: "./policy", allowed: true, direct: true},
		{in: "runners/verification", imports: "github.com/jackc/pgx/v5/pgconn", allowed: true},
		{in: "runners/verification", imports: "github.com/jackc/pgx/v5/pgxpool"},
	}
	for _, db := range []string{"./eventstore", "./projections", "./commands", "./migrations", "./internal/pgembed", "github.com/jackc/pgx/v5", "github.com/minio/minio-go/v7"} {
		all = append(all, plant{in: "agent", imports: db})
	}
	siblings := []string{"dispatch", "forwarder", "callbacks", "artifacts", "ledger"}
	for i, s := range siblings {
		all = append(all,
			plant{in: s, imports: "./" + siblings[(i+1)%len(siblings)]},
			plant{in: s, imports: "./api"},
			plant{in: s, imports: "./agent"},
			plant{in: s, imports: "./commands", allowed: true})
	}
	executors := []string{"ansible", "kubernetes", "helm", "opentofu", "ssh", "verification"}
	for i, x := range executors {
		all = append(all,
			plant{in: "runners/" + x, imports: "./runners/" + executors[(i+1)%len(executors)]},
			plant{in: "runners/" + x, imports: "./eventstore"},
			plant{in: "runners/" + x, imports: "./runners", allowed: true},
			plant{in: "runners/" + x, imports: "./agent/executor", allowed: true})
	}
	return all
}

// path puts each plant into a package of its own below the folder, so that no
// two of them form a cycle.
func (p plant) path(i int) string {
	dir, name := filepath.Join(p.in, fmt.Sprintf("plant%d", i)), "plant.go"
	if p.direct {
		dir, name = p.in, fmt.Sprintf("plant%d.go", i)
	}
	if p.test {
		name = "plant_test.go"
	}
	return filepath.Join(dir, name)
}

func write(t *testing.T, root, path, text string) {
	t.Helper()
	full := filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// layOut makes a module of the same name with every package, but empty.
func layOut(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	config, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, root, ".golangci.yml", string(config))
	var gomod strings.Builder
	fmt.Fprintf(&gomod, "module %s\n\ngo 1.26\n", module)
	for path, packages := range foreign {
		version := "v1.0.0"
		if i := strings.LastIndex(path, "/v"); i >= 0 && len(path) == i+3 {
			version = path[i+1:] + ".0.0"
		}
		dir := filepath.Join("foreign", path)
		fmt.Fprintf(&gomod, "require %s %s\nreplace %s => ./%s\n", path, version, path, dir)
		write(t, root, filepath.Join(dir, "go.mod"), "module "+path+"\n\ngo 1.26\n")
		for _, p := range packages {
			text := "package stub\n"
			if path == "github.com/google/uuid" {
				text = "package uuid\n\nfunc New() string { return \"\" }\n\nfunc Parse(string) string { return \"\" }\n"
			}
			write(t, root, filepath.Join(dir, p, "stub.go"), text)
		}
	}
	write(t, root, "go.mod", gomod.String())
	for _, p := range own {
		write(t, root, filepath.Join(p, "doc.go"), "package stub\n")
	}
	return root
}

// lint returns what the linter said, one finding a line.
func lint(t *testing.T, root string, args ...string) []string {
	t.Helper()
	binary := os.Getenv("GOLANGCI_LINT")
	if binary == "" {
		t.Fatal("GOLANGCI_LINT must name the linter; run `make lint`")
	}
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"run", "--show-stats=false", "--output.text.print-issued-lines=false", "--output.text.colors=false"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil // findings
	}
	if err != nil {
		t.Fatalf("running the linter: %v\n%s%s", err, out, stderr.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

func TestImportRules(t *testing.T) {
	root := layOut(t)
	all := plants()
	for i, p := range all {
		path := strings.Replace(p.imports, "./", module+"/", 1)
		write(t, root, p.path(i), fmt.Sprintf("package stub\n\nimport _ %q\n", path))
	}
	found := map[string]string{}
	for _, line := range lint(t, root, "--enable-only=depguard", "./...") {
		file, text, ok := strings.Cut(line, ":")
		if !ok || !strings.HasSuffix(line, "(depguard)") {
			t.Errorf("the linter says %q", line)
			continue
		}
		found[file] = text
	}
	for i, p := range all {
		text, caught := found[p.path(i)]
		switch {
		case caught && p.allowed:
			t.Errorf("%s may import %s, but: %s", p.in, p.imports, text)
		case !caught && !p.allowed:
			t.Errorf("%s imports %s (test file: %v), and nobody objects", p.in, p.imports, p.test)
		}
	}
}

func TestDomainHasNoClockAndNoRandomness(t *testing.T) {
	root := layOut(t)
	const text = `package stub

import (
	now "time"

	ids "github.com/google/uuid"
)

var (
	_ = now.Now
	_ = now.Unix
	_ = ids.New
	_ = ids.Parse
)
`
	write(t, root, "domain/plant.go", text)
	write(t, root, "commands/plant.go", text)
	var got []string
	for _, line := range lint(t, root, "--enable-only=forbidigo", "./...") {
		parts := strings.SplitN(line, ":", 4)
		got = append(got, strings.Join(parts[:2], ":"))
	}
	if want := "domain/plant.go:10 domain/plant.go:12"; strings.Join(got, " ") != want {
		t.Errorf("found at %q, want %s", got, want)
	}
}
