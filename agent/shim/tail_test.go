package shim

import (
	"strings"
	"testing"
)

// What is kept of the shim's last words begins with a whole line: half a secret is
// not found by who masks the text.
func TestLastWordsBeginWithALine(t *testing.T) {
	const secret = "s3cr3t-Value-99"
	last := &tail{}
	for range 200 {
		if _, err := last.Write([]byte("a line with " + secret + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	got := last.text()
	if !strings.HasPrefix(got, "a line with ") || len(got) < 1000 || len(got) > 2<<10 {
		t.Errorf("%d bytes that begin with %.20q", len(got), got)
	}
	long := &tail{}
	if _, err := long.Write([]byte(strings.Repeat("x", 3<<10) + secret)); err != nil {
		t.Fatal(err)
	}
	if got := long.text(); got != "" {
		t.Errorf("of one long line %d bytes are kept", len(got))
	}
	if _, err := long.Write([]byte(" its end\nthe next")); err != nil {
		t.Fatal(err)
	}
	if got := long.text(); got != "the next" {
		t.Errorf("then %q", got)
	}
}
