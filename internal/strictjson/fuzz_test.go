package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

// FuzzUnmarshal holds that what passes is unambiguous: the standard decoder
// agrees, a second round gives the same value, and RFC 8785 can digest it.
func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"attempt_id":"6ba7b810-9dad-41d1-80b4-00c04fd430c8","list":[{"name":"\ud83d\ude00"}],"parameters":{"a":[1e3,-0.1,null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var typed body
		if err := strictjson.Unmarshal(data, &typed); err != nil {
			own, ok := errors.AsType[*strictjson.Error](err)
			if !ok {
				t.Fatalf("a body caused %T: %v", err, err)
			}
			if !utf8.ValidString(own.Pointer) || bytes.ContainsRune([]byte(own.Pointer), 0) {
				t.Fatalf("pointer %q cannot be shown", own.Pointer)
			}
		} else {
			roundTrip(t, typed)
		}
		if strictjson.Check(data) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q passed and is no JSON", data)
		}
		var free any
		if err := strictjson.Unmarshal(data, &free); err != nil {
			t.Fatalf("Check passed, Unmarshal into any did not: %v", err)
		}
		canonical, err := jcs.Transform(data)
		if err != nil {
			// The library canonicalises objects and arrays only.
			if trimmed := bytes.TrimLeft(data, " \t\r\n"); trimmed[0] == '{' || trimmed[0] == '[' {
				t.Fatalf("RFC 8785 cannot digest %q: %v", data, err)
			}
			return
		}
		if err := strictjson.Check(canonical); err != nil {
			t.Fatalf("the canonical form %q is refused: %v", canonical, err)
		}
	})
}

func roundTrip(t *testing.T, typed body) {
	t.Helper()
	first, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	var again body
	if err := json.Unmarshal(first, &again); err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(again)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Fatalf("a second round differs:\n%s\n%s", first, second)
	}
}
