package api

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/goccy/go-yaml"
)

// The document is written by the tests from the route table and the types of
// packages wire and domain: go test ./api -run TestOpenAPI -update.
//
//go:embed openapi.yaml
var openAPIYAML []byte

// OpenAPI is the OpenAPI 3.1 document as JSON.
func OpenAPI() ([]byte, error) { return openAPIJSON() }

var openAPIJSON = sync.OnceValues(func() ([]byte, error) {
	var doc any
	if err := yaml.Unmarshal(openAPIYAML, &doc); err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("write openapi.json: %w", err)
	}
	return b, nil
})

func (s *server) serveOpenAPI(q *request) error {
	b, err := OpenAPI()
	if err != nil {
		return err
	}
	return q.immutable(mediaJSON, b)
}
