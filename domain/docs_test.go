package domain_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

// TestEveryEventIsDescribed holds docs/events.md to the registry: a section for
// every event, its schema, each of its fields, and the golden file as example.
func TestEveryEventIsDescribed(t *testing.T) {
	raw, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, shared, ok := strings.Cut(page, "\n## Shared shapes\n")
	if !ok || !strings.Contains(page, "```mermaid\nstateDiagram-v2\n") {
		t.Fatal("the page lacks its shared shapes or its diagram of states")
	}
	for _, name := range domain.EventTypes() {
		t.Run(name, func(t *testing.T) {
			_, section, ok := strings.Cut(page, "\n### `"+name+"`\n")
			if !ok {
				t.Fatal("has no section")
			}
			section, _, _ = strings.Cut(section, "\n## ")
			section, _, _ = strings.Cut(section, "\n### ")
			schema := domain.EventSchema(name)
			if !strings.Contains(section, fmt.Sprintf("Schema %d · stream `", schema)) {
				t.Errorf("does not say schema %d and its stream", schema)
			}
			table, example, _ := strings.Cut(section, "```json\n")
			example, _, _ = strings.Cut(example, "```")
			golden := goldenBytes(t, name, schema)
			e, err := domain.DecodeEvent(name, schema, []byte(example))
			if err != nil {
				t.Fatalf("the example: %v", err)
			}
			if _, _, got, err := domain.EncodeEvent(e); err != nil || !bytes.Equal(golden, got) {
				t.Errorf("the example is not the golden file: %v", err)
			}
			if strings.Contains(table, "see [") {
				table += shared
			}
			for _, field := range fields(t, golden) {
				if !strings.Contains(table, "`"+field+"`") {
					t.Errorf("does not describe %s", field)
				}
			}
		})
	}
}

// fields names the members of a payload, nested ones too; the keys of labels and
// tools, and an artifact's inline content, are data.
func fields(t *testing.T, payload []byte) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(payload, &v); err != nil {
		t.Fatal(err)
	}
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, below := range v {
				out = append(out, name)
				if name != "labels" && name != "tools" && name != "inline" {
					walk(below)
				}
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(v)
	return out
}
