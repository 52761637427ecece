package domain_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/platform-core/execution-plane-service/domain"
)

// update writes the golden files that do not exist yet. It never rewrites one:
// what was once written to a ledger stays as it was.
var update = flag.Bool("update", false, "write missing golden files of events")

func goldenPath(name string, schema int) string {
	return filepath.Join("testdata", "events", fmt.Sprintf("%s.v%d.json", name, schema))
}

func goldenBytes(t *testing.T, name string, schema int) []byte {
	t.Helper()
	b, err := os.ReadFile(goldenPath(name, schema))
	if err != nil {
		t.Fatalf("%v; add a sample and run: go test ./domain -run TestGolden -update", err)
	}
	return bytes.TrimSuffix(b, []byte("\n"))
}

func goldenEvent(t *testing.T, name string) domain.Event {
	t.Helper()
	e, err := domain.DecodeEvent(name, domain.EventSchema(name), goldenBytes(t, name, domain.EventSchema(name)))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestGoldenSamplesCoverTheRegistry(t *testing.T) {
	sampled := map[string]bool{}
	for _, e := range samples() {
		name, schema, payload, err := domain.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		sampled[name] = true
		path := goldenPath(name, schema)
		if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
			if err := os.WriteFile(path, append(payload, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := goldenBytes(t, name, schema); !bytes.Equal(want, payload) {
			t.Errorf("the payload of %s changed: raise its schema number and keep the old file\nwas %s\nis  %s", name, want, payload)
		}
	}
	for _, name := range domain.EventTypes() {
		if !sampled[name] {
			t.Errorf("%s has no sample", name)
		}
	}
}

// TestGoldenFilesDecode reads every payload that was ever written: to the same
// bytes again, with no field left empty. A new field of an old schema stays
// empty here and fails, one taken away is unknown and fails.
func TestGoldenFilesDecode(t *testing.T) {
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil || len(files) < len(domain.EventTypes()) {
		t.Fatalf("%d golden files for %d events: %v", len(files), len(domain.EventTypes()), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			name, number, ok := strings.Cut(strings.TrimSuffix(filepath.Base(path), ".json"), ".v")
			var schema int
			if _, err := fmt.Sscan(number, &schema); !ok || err != nil {
				t.Fatalf("the file is not called <type>.v<schema>.json: %v", err)
			}
			raw := goldenBytes(t, name, schema)
			e, err := domain.DecodeEvent(name, schema, raw)
			if err != nil {
				t.Fatal(err)
			}
			if e.EventType() != name {
				t.Errorf("decoded as %s", e.EventType())
			}
			_, _, again, err := domain.EncodeEvent(e)
			if err != nil || !bytes.Equal(raw, again) {
				t.Errorf("encoded again: %v\nwas %s\nis  %s", err, raw, again)
			}
			for _, field := range empty(reflect.ValueOf(e), name) {
				t.Errorf("%s is empty in the golden file: a new field needs a new schema number", field)
			}
		})
	}
}

// empty names the fields below v that hold their zero value.
func empty(v reflect.Value, path string) []string {
	if _, text := v.Interface().(fmt.Stringer); text || v.Kind() != reflect.Struct && v.Kind() != reflect.Pointer && v.Kind() != reflect.Slice {
		if v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0 {
			return []string{path}
		}
		return nil
	}
	var out []string
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return []string{path}
		}
		return empty(v.Elem(), path)
	case reflect.Slice:
		if v.Len() == 0 {
			return []string{path}
		}
		for i := range v.Len() {
			out = append(out, empty(v.Index(i), fmt.Sprintf("%s[%d]", path, i))...)
		}
	default:
		for i := range v.NumField() {
			out = append(out, empty(v.Field(i), path+"."+v.Type().Field(i).Name)...)
		}
	}
	return out
}

func TestEmptyFindsWhatIsNotSet(t *testing.T) {
	e := domain.Completed{Epoch: 1, UploadUntil: t0, Environment: "x", Claim: sampleClaim()}
	e.Claim.Logs = []domain.ClaimedLog{{Stream: "stdout", Bytes: 1}}
	e.Claim.Code = nil
	got := strings.Join(empty(reflect.ValueOf(e), "e"), " ")
	if got != "e.Claim.Code e.Claim.Logs[0].SHA256" {
		t.Errorf("found %q", got)
	}
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	good := goldenBytes(t, "execution.attempt.started", 1)
	for name, schema := range map[string]int{"execution.attempt.started": 2, "execution.attempt.Started": 1, "": 1, "execution.attempt.teleported": 1} {
		_, err := domain.DecodeEvent(name, schema, good)
		var unknown *domain.UnknownEventError
		if !errors.As(err, &unknown) || unknown.Type != name || unknown.Schema != schema || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("%s v%d: %v", name, schema, err)
		}
	}
	for _, payload := range []string{``, `[]`, `{"epoch":"1"}`, `{"epoch":1,"later":true}`, `{"epoch":1`, `{"epoch":1} {"epoch":2}`, `{"epoch":1}x`} {
		if e, err := domain.DecodeEvent("execution.attempt.started", 1, []byte(payload)); err == nil {
			t.Errorf("%s was read as %+v", payload, e)
		}
	}
	if _, _, _, err := domain.EncodeEvent(notRegistered{}); err == nil {
		t.Error("an event that is not registered was encoded")
	}
	if domain.EventSchema("execution.attempt.teleported") != 0 {
		t.Error("an unknown name has no schema")
	}
}

type notRegistered struct{}

func (notRegistered) EventType() string { return "execution.attempt.teleported" }
