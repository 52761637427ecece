package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/masker"
)

// A text that is cut short inside a JSON string ends there, as a stream ends: what
// begins a secret is masked, in values and in keys, however deep.
func TestCutTextsInsideJSONAreMasked(t *testing.T) {
	const secret = "6f1ac94be2d07735c8a1"
	set := masker.New()
	if _, err := set.Add("key", []byte(secret)); err != nil {
		t.Fatal(err)
	}
	cut := secret[:14]
	for _, in := range []string{
		`{"message":"it was ` + cut + `"}`, `{"` + cut + `":1}`, `[[{"a":["` + cut + `",2.50]}]]`, `"` + cut + `"`,
	} {
		got := string(maskJSON(set, []byte(in)))
		if strings.Contains(got, secret[:6]) || !json.Valid([]byte(got)) {
			t.Errorf("%s becomes %s", in, got)
		}
		if text := maskText(set, []byte(in)); strings.Contains(text, secret[:6]) {
			t.Errorf("%s becomes the text %s", in, text)
		}
	}
	for _, same := range []string{`{"b": 1,  "a":"x", "n": 1e400}`, `not json`, ``} {
		if got := maskText(set, []byte(same)); got != same {
			t.Errorf("%s becomes %s", same, got)
		}
	}
}
