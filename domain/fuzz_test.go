package domain_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

var canonical = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// spellings are forms that lenient UUID parsers take for the same id.
func spellings() []string {
	id := attemptA.String()
	return []string{
		"urn:uuid:" + id, "URN:UUID:" + id, "uRn:UuId:" + id, "{" + id + "}", "(" + id + ")", "[" + id + "]", "x" + id + "y",
		strings.ReplaceAll(id, "-", ""), strings.ToUpper(id), "0A" + id[2:], id + "\n", " " + id, id + " ", id + "\x00",
		strings.Replace(id, "0", "０", 1), strings.Replace(id, "-", "_", 1), id[:35], id + "0", "",
		"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-fffffffffffg",
	}
}

func TestOneIDHasOneSpelling(t *testing.T) {
	if id, err := domain.ParseID[domain.AttemptID](attemptA.String()); err != nil || id != attemptA {
		t.Fatalf("%v %v", id, err)
	}
	for _, s := range spellings() {
		if _, err := domain.ParseID[domain.AttemptID](s); err == nil {
			t.Errorf("%q was taken for an id", s)
		}
		if s == "" {
			continue // in JSON the empty text is the id that was not set
		}
		var id domain.AttemptID
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &id); err == nil {
			t.Errorf("%s was taken for an id", b)
		}
	}
	var zero domain.AttemptID
	if b, err := json.Marshal(zero); err != nil || string(b) != `""` || !zero.IsZero() || zero.String() != "" {
		t.Errorf("the zero id is %s, %v", b, err)
	}
	if err := json.Unmarshal([]byte(`""`), &zero); err != nil || !zero.IsZero() {
		t.Errorf("%v %v", zero, err)
	}
}

func TestDerivedIDs(t *testing.T) {
	other := domain.NewID[domain.AttemptID](uuid.MustParse(runnerA.String()))
	seen := map[uuid.UUID]string{}
	for name, id := range map[string]uuid.UUID{
		"lease 1": domain.LeaseIDOf(attemptA, 1).UUID(), "lease 2": domain.LeaseIDOf(attemptA, 2).UUID(), "lease 1 of another": domain.LeaseIDOf(other, 1).UUID(),
		"artifact a": domain.ArtifactIDOf(attemptA, "a").UUID(), "artifact b": domain.ArtifactIDOf(attemptA, "b").UUID(),
		"command a": domain.DeriveCommandID(attemptA.UUID(), "a").UUID(), "command b": domain.DeriveCommandID(attemptA.UUID(), "b").UUID(),
		"log": uuid.MustParse(domain.LogID(attemptA, "stdout")),
	} {
		if was, ok := seen[id]; ok {
			t.Errorf("%s and %s are one id", was, name)
		}
		seen[id] = name
	}
	// Agents and other programs derive the same id: it must never move.
	if got := domain.LeaseIDOf(attemptA, 1).String(); got != uuid.NewSHA1(attemptA.UUID(), []byte("lease/1")).String() {
		t.Errorf("lease id %s", got)
	}
}

func FuzzParseUUID(f *testing.F) {
	for _, s := range append(spellings(), attemptA.String()) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := domain.ParseUUID(s)
		want := canonical.MatchString(s) && !strings.HasSuffix(s, "\n") && s != uuid.Nil.String()
		if (err == nil) != want {
			t.Fatalf("%q: %v", s, err)
		}
		if err == nil && u.String() != s {
			t.Fatalf("%q came back as %s", s, u)
		}
		if id, idErr := domain.ParseID[domain.RunnerID](s); (idErr == nil) != want || want && id.String() != s {
			t.Fatalf("ParseID and ParseUUID differ on %q: %v", s, idErr)
		}
		if err != nil && (len(err.Error()) > 400 || utf8.ValidString(s) && strings.ContainsRune(err.Error(), '\x00')) {
			t.Fatalf("the error is no line of text: %q", err)
		}
	})
}

func FuzzParseConstraint(f *testing.F) {
	for _, s := range []string{">=2.17", ">=2.17,<3", "1.2", "=v1.2.3-rc1", "!= 1 , > 0", "", ",", "+1", ">=1.+2", "=>1", "９"} {
		f.Add(s, "2.17.1")
	}
	f.Fuzz(func(t *testing.T, s, version string) {
		c, err := domain.ParseConstraint(s)
		if err != nil {
			return
		}
		if len(c) != strings.Count(s, ",")+1 {
			t.Fatalf("%q has %d bounds", s, len(c))
		}
		if strings.ContainsAny(s[:1], "+-.") {
			t.Fatalf("%q was read as a constraint", s)
		}
		allowed := c.Allows(version)
		one, err := domain.ParseConstraint("=" + version)
		if err != nil {
			return
		}
		if !one.Allows(version) && !strings.Contains(version, ",") && strings.TrimSpace(version) == version {
			t.Fatalf("=%q does not allow itself", version)
		}
		// A conjunction allows no more than each of its parts.
		for part := range strings.SplitSeq(s, ",") {
			p, err := domain.ParseConstraint(part)
			if err != nil || allowed && !p.Allows(version) {
				t.Fatalf("%q allows %q, its part %q does not: %v", s, version, part, err)
			}
		}
	})
}

// Every event but those that hold foreign JSON goes the short way.
func TestEventsAreReadInOnePass(t *testing.T) {
	for _, name := range domain.EventTypes() {
		e := sampleOf(t, name)
		_, _, payload, err := domain.EncodeEvent(e)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := domain.ReadPlainly(name, payload)
		if a, foreign := e.(domain.ArtifactCreated); foreign && len(a.Inline) > 0 {
			if ok {
				t.Errorf("%s went the short way with foreign JSON in it", name)
			}
			continue
		}
		if !ok || !reflect.DeepEqual(got, e) {
			t.Errorf("%s: %v %#v, want %#v\n%s", name, ok, got, e, payload)
		}
	}
}

func FuzzDecodeEvent(f *testing.F) {
	names := domain.EventTypes()
	for i, name := range names {
		_, _, payload, err := domain.EncodeEvent(sampleOf(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), payload)
	}
	odd := []string{``, `null`, `{}`, `[]`, `{"epoch":1}{}`, `{"Epoch":1}`, `{"epoch":1e400}`, `{"inline":{"a":"<&>"}}`,
		`{"epoch":1,"epoch":2}`, `{"epoch":01}`, `{"epoch":-0}`, `{"epoch":1.0}`, `{"epoch":9223372036854775808}`, `{"epoch":null}`, `{"epoch":-7}`,
		`{"bundle_digest":"é"}`, `{"bundle_digest":"\u0041"}`, "{\"at\":\"\x7f\"}", `{"rules":[]}`, `{"rules":null}`, `{"rules":["a",]}`, `{"rules":["a",null]}`,
		`{"labels":{"a":"1","a":"2"}}`, `{"labels":{}}`, `{"labels":null}`, `{"retry_of":null}`, `{"retry_of":""}`, `{"at":"x"`, `{"at":"x",}`, `{"Ended":{}}`,
		`{"created_at":"2026-01-01T00:00:00+24:00"}`, `{"deadline":"0000-13-01T00:00:00Z"}`, `{"destructive":true}`, `{"destructive":tru}`, `{"priority":-1}`}
	for _, payload := range odd {
		for i := range names {
			f.Add(uint8(i), []byte(payload))
		}
	}
	f.Fuzz(func(t *testing.T, i uint8, payload []byte) {
		name := names[int(i)%len(names)]
		e, err := domain.DecodeEvent(name, domain.EventSchema(name), payload)
		// A space in front sends the payload the long way, which must say the same.
		if long, lerr := domain.DecodeEvent(name, domain.EventSchema(name), append([]byte(" "), payload...)); (err == nil) != (lerr == nil) || !reflect.DeepEqual(e, long) {
			t.Fatalf("%s reads as %#v (%v), the long way as %#v (%v)", name, e, err, long, lerr)
		}
		if err != nil {
			return
		}
		// What can be read can be written, and reads the same from then on.
		_, schema, once, err := domain.EncodeEvent(e)
		if err != nil {
			t.Fatalf("%s cannot be written again: %v", name, err)
		}
		again, err := domain.DecodeEvent(name, schema, once)
		if err != nil {
			t.Fatalf("%s cannot be read again: %v\n%s", name, err, once)
		}
		if _, _, twice, err := domain.EncodeEvent(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s does not settle: %v\n%s\n%s", name, err, once, twice)
		}
		for _, a := range []domain.Attempt{{}, fold(queued()), fold(running()), fold(finalizing()), fold(closed())} {
			_, _ = domain.EvolveAttempt(a, e, t0) // a damaged stream is an error, never a panic
		}
	})
}

func sampleOf(tb testing.TB, name string) domain.Event {
	tb.Helper()
	for _, e := range samples() {
		if e.EventType() == name {
			return e
		}
	}
	tb.Fatalf("%s has no sample", name)
	return nil
}
