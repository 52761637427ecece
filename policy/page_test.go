package policy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/platform-core/execution-plane-service/policy"
)

// The examples of the page are one bundle that loads, and together they have every
// kind of rule.
func TestExamplesOfThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for i, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		files[strconv.Itoa(i)+".yaml"] = &fstest.MapFile{Data: block[1]}
	}
	b, err := policy.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{"secret_mappings": true} // of another page
	for _, r := range b.Explain(policy.Input{}).Rules {
		kinds[r.Kind] = true
	}
	for _, r := range testBundle(t, "whole").Explain(policy.Input{}).Rules {
		if !kinds[r.Kind] {
			t.Errorf("the page has no example of %s", r.Kind)
		}
	}
}

// Every reason code of the package stands on the page, or is one of those of
// secrets, which stand on that of operations.
func TestReasonCodesOfThePage(t *testing.T) {
	source, err := os.ReadFile("verdict.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`Code\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(codes) < 40 {
		t.Fatalf("%d codes are found", len(codes))
	}
	for _, c := range codes {
		name := "policy.md"
		if strings.HasPrefix(c[1], "secret_") {
			name = "operations.md"
		}
		page, err := os.ReadFile(filepath.Join("..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "`"+c[1]+"`") {
			t.Errorf("%s does not have %s", name, c[1])
		}
	}
}

// Every field of the JSON form of an input is one that the digest is over, so a
// new one must not change the digest of a job that does not have it.
func TestNewFieldsOfAnInputAreLeftOutWhereEmpty(t *testing.T) {
	first := map[string]bool{"action": true, "job_type": true, "environment": true, "runner": true, "isolation": true, "targets": true,
		"retry_policy_ref": true, "allowed_commands_ref": true, "operation_policy_ref": true}
	for f := range reflect.TypeFor[policy.Input]().Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !first[name] && options != "omitempty" {
			t.Errorf("%s is in the digest of every job", name)
		}
	}
}
