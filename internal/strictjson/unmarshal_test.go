package strictjson_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/internal/strictjson"
)

type inner struct {
	Name  string `json:"name"`
	Count int8   `json:"count,omitempty"`
}

type Embedded struct {
	Promoted string `json:"promoted"`
}

// celsius decodes itself and calls back, as a type with a tagged union would.
type celsius struct{ Degrees float64 }

func (c *celsius) UnmarshalJSON(data []byte) error {
	var plain struct {
		Degrees float64 `json:"degrees"`
	}
	if err := strictjson.Unmarshal(data, &plain); err != nil {
		return err
	}
	c.Degrees = plain.Degrees
	return nil
}

func (c celsius) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]float64{"degrees": c.Degrees})
}

type colour string

func (c *colour) UnmarshalText(text []byte) error {
	if string(text) != "red" && string(text) != "" {
		return errors.New("must be red")
	}
	*c = colour(text)
	return nil
}

type body struct {
	Embedded
	AttemptID  uuid.UUID            `json:"attempt_id"`
	Status     string               `json:"status"`
	At         time.Time            `json:"at"`
	Inner      inner                `json:"inner"`
	Optional   *inner               `json:"optional"`
	List       []inner              `json:"list"`
	Pair       [2]int               `json:"pair"`
	Labels     map[string]string    `json:"labels"`
	ByID       map[uuid.UUID]string `json:"by_id"`
	ByNumber   map[int8]string      `json:"by_number"`
	Parameters json.RawMessage      `json:"parameters"`
	Anything   any                  `json:"anything"`
	Flag       bool                 `json:"flag"`
	Big        int64                `json:"big"`
	Size       uint16               `json:"size"`
	Ratio      float64              `json:"ratio"`
	Small      float32              `json:"small"`
	Exact      json.Number          `json:"exact"`
	Bytes      []byte               `json:"bytes"`
	Heat       celsius              `json:"heat"`
	Colour     colour               `json:"colour"`
	Quoted     int                  `json:"quoted,string"`
	Untagged   string
	Hidden     string `json:"-"`
}

const goodID = "6ba7b810-9dad-41d1-80b4-00c04fd430c8"

func TestUnmarshalAcceptsWhatFits(t *testing.T) {
	in := ` {"attempt_id":"` + goodID + `","status":"ok \ud83d\ude00 \u00e9 \"\\\/\b\f\n\r\t é","promoted":"p",
	"at":"2026-01-02T03:04:05.123456Z","inner":{"name":"n","count":-128},"optional":null,"list":[{"name":"a"},{"name":"b"}],
	"pair":[1,2],"labels":{"a":"1","A":"2"},"by_id":{"` + goodID + `":"x"},"by_number":{"-3":"x"},
	"parameters":{"deep":[1,-0.5e-3,true,false,null]},"anything":[9007199254740992,-9007199254740992],
	"flag":true,"big":9007199254740992,"size":65535,"ratio":1.5,"small":1,"exact":12,"bytes":"aGk=",
	"heat":{"degrees":20},"colour":"red","quoted":"7","Untagged":"u"} `
	var got body
	if err := strictjson.Unmarshal([]byte(in), &got); err != nil {
		t.Fatal(err)
	}
	want := body{
		Embedded: Embedded{"p"}, AttemptID: uuid.MustParse(goodID),
		Status: "ok 😀 é \"\\/\b\f\n\r\t é", At: time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC),
		Inner: inner{"n", -128}, List: []inner{{Name: "a"}, {Name: "b"}}, Pair: [2]int{1, 2},
		Labels: map[string]string{"a": "1", "A": "2"}, ByID: map[uuid.UUID]string{uuid.MustParse(goodID): "x"},
		ByNumber: map[int8]string{-3: "x"}, Parameters: json.RawMessage(`{"deep":[1,-0.5e-3,true,false,null]}`),
		Anything: []any{float64(1 << 53), -float64(1 << 53)}, Flag: true, Big: 1 << 53, Size: 65535, Ratio: 1.5,
		Small: 1, Exact: "12", Bytes: []byte("hi"), Heat: celsius{20}, Colour: "red", Quoted: 7, Untagged: "u",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded value differs (-want +got):\n%s", diff)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	long := strings.Repeat("k", 300)
	rows := []struct {
		name, in string
		pointer  string
		code     strictjson.Code
	}{
		// C132: one body, two readings.
		{"case variant beside the name", `{"status":"failed","Status":"succeeded"}`, "/Status", strictjson.CodeCase},
		{"case variant alone", `{"STATUS":"failed"}`, "/STATUS", strictjson.CodeCase},
		{"long s", `{"ſtatus":"failed"}`, "/ſtatus", strictjson.CodeCase},
		{"escaped long s", `{"\u017ftatus":"failed"}`, "/ſtatus", strictjson.CodeCase},
		{"case variant of a promoted name", `{"Promoted":"x"}`, "/Promoted", strictjson.CodeCase},
		{"case variant of an untagged name", `{"untagged":"x"}`, "/untagged", strictjson.CodeCase},
		{"case variant in a list", `{"list":[{"name":"a"},{"Name":"b"}]}`, "/list/1/Name", strictjson.CodeCase},
		{"duplicate", `{"attempt_id":"` + goodID + `","attempt_id":"` + goodID + `"}`, "/attempt_id", strictjson.CodeDuplicate},
		{"duplicate behind an escape", `{"status":"a","st\u0061tus":"b"}`, "/status", strictjson.CodeDuplicate},
		{"duplicate deep in free form", `{"parameters":{"a":[{"b":1,"b":1}]}}`, "/parameters/a/0/b", strictjson.CodeDuplicate},
		{"duplicate in a map", `{"labels":{"a":"1","a":"1"}}`, "/labels/a", strictjson.CodeDuplicate},
		{"duplicate late in a large object", `{"anything":{` + manyMembers(40) + `,"k3":0}}`, "/anything/k3", strictjson.CodeDuplicate},
		{"unknown", `{"unknown":1}`, "/unknown", strictjson.CodeUnknown},
		{"unknown with an escaped pointer", `{"a/b~c":1}`, "/a~1b~0c", strictjson.CodeUnknown},
		{"unknown and too long to repeat", `{"inner":{"` + long + `":1}}`, "/inner", strictjson.CodeUnknown},
		{"hidden field", `{"Hidden":"x"}`, "/Hidden", strictjson.CodeUnknown},
		{"dash is no name", `{"-":"x"}`, "/-", strictjson.CodeUnknown},
		{"the embedded struct has no name", `{"Embedded":{}}`, "/Embedded", strictjson.CodeUnknown},
		{"second value", `{}{}`, "", strictjson.CodeTrailing},
		{"second value after space", "{} \n {}", "", strictjson.CodeTrailing},
		{"trailing bracket", `{}]`, "", strictjson.CodeTrailing},
		// C133: one id has one spelling.
		{"urn", `{"attempt_id":"urn:uuid:` + goodID + `"}`, "/attempt_id", strictjson.CodeInvalid},
		{"upper-case urn", `{"attempt_id":"URN:UUID:` + goodID + `"}`, "/attempt_id", strictjson.CodeInvalid},
		{"braces", `{"attempt_id":"{` + goodID + `}"}`, "/attempt_id", strictjson.CodeInvalid},
		{"round brackets", `{"attempt_id":"(` + goodID + `)"}`, "/attempt_id", strictjson.CodeInvalid},
		{"no dashes", `{"attempt_id":"` + strings.ReplaceAll(goodID, "-", "") + `"}`, "/attempt_id", strictjson.CodeInvalid},
		{"upper case", `{"attempt_id":"` + strings.ToUpper(goodID) + `"}`, "/attempt_id", strictjson.CodeInvalid},
		{"nil UUID", `{"attempt_id":"` + uuid.Nil.String() + `"}`, "/attempt_id", strictjson.CodeInvalid},
		{"trailing newline", `{"attempt_id":"` + goodID + `\n"}`, "/attempt_id", strictjson.CodeInvalid},
		{"full-width digits", `{"attempt_id":"６ba7b810-9dad-41d1-80b4-00c04fd430c8"}`, "/attempt_id", strictjson.CodeInvalid},
		{"empty id", `{"attempt_id":""}`, "/attempt_id", strictjson.CodeInvalid},
		{"bad id as a map key", `{"by_id":{"` + strings.ToUpper(goodID) + `":"x"}}`, "/by_id/" + strings.ToUpper(goodID), strictjson.CodeInvalid},
		// C135: characters that the database cannot hold.
		{"escaped NUL", `{"parameters":{"a":"x\u0000y"}}`, "/parameters/a", strictjson.CodeNUL},
		{"raw NUL", "{\"status\":\"x\x00y\"}", "/status", strictjson.CodeNUL},
		{"NUL in a key", `{"labels":{"a\u0000":"x"}}`, "/labels", strictjson.CodeNUL},
		{"high surrogate alone", `{"status":"\ud800"}`, "/status", strictjson.CodeSurrogate},
		{"low surrogate alone", `{"status":"\udc00x"}`, "/status", strictjson.CodeSurrogate},
		{"two high surrogates", `{"status":"\ud800\ud800"}`, "/status", strictjson.CodeSurrogate},
		{"high surrogate before another escape", `{"status":"\ud800\n"}`, "/status", strictjson.CodeSurrogate},
		{"lone surrogate in a key", `{"labels":{"\ud800":"x"}}`, "/labels", strictjson.CodeSurrogate},
		{"invalid UTF-8", "{\"list\":[{\"name\":\"\xff\"}]}", "/list/0/name", strictjson.CodeUTF8},
		{"UTF-8 of a surrogate", "{\"status\":\"\xed\xa0\x80\"}", "/status", strictjson.CodeUTF8},
		{"overlong UTF-8", "{\"status\":\"\xc0\x80\"}", "/status", strictjson.CodeUTF8},
		{"invalid UTF-8 in a key", "{\"labels\":{\"\xff\":\"x\"}}", "/labels", strictjson.CodeUTF8},
		// Numbers.
		{"just beyond 2^53", `{"big":9007199254740993}`, "/big", strictjson.CodeRange},
		{"just beyond -2^53", `{"anything":[-9007199254740993]}`, "/anything/0", strictjson.CodeRange},
		{"beyond 2^53 with a fraction", `{"parameters":{"n":9007199254740993.0}}`, "/parameters/n", strictjson.CodeRange},
		{"beyond 2^53 with an exponent", `{"ratio":1e16}`, "/ratio", strictjson.CodeRange},
		{"beyond every float", `{"ratio":1e999}`, "/ratio", strictjson.CodeRange},
		{"beyond int8", `{"inner":{"count":128}}`, "/inner/count", strictjson.CodeRange},
		{"negative for unsigned", `{"size":-1}`, "/size", strictjson.CodeRange},
		{"fraction for integer", `{"big":1.0}`, "/big", strictjson.CodeType},
		{"exponent for integer", `{"big":1e2}`, "/big", strictjson.CodeType},
		{"leading zero", `{"big":01}`, "/big", strictjson.CodeSyntax},
		{"plus sign", `{"big":+1}`, "/big", strictjson.CodeSyntax},
		{"bare minus", `{"big":-}`, "/big", strictjson.CodeSyntax},
		{"NaN", `{"ratio":NaN}`, "/ratio", strictjson.CodeSyntax},
		// Types.
		{"number for string", `{"status":1}`, "/status", strictjson.CodeType},
		{"string for number", `{"list":[{"name":"a"},{"count":"1"}]}`, "/list/1/count", strictjson.CodeType},
		{"string for json.Number", `{"exact":"1"}`, "/exact", strictjson.CodeType},
		{"array for object", `{"inner":[]}`, "/inner", strictjson.CodeType},
		{"object for array", `{"list":{}}`, "/list", strictjson.CodeType},
		{"array as body", `[]`, "", strictjson.CodeType},
		{"number for UUID", `{"attempt_id":1}`, "/attempt_id", strictjson.CodeType},
		{"string for bool", `{"flag":"true"}`, "/flag", strictjson.CodeType},
		{"wrong element", `{"labels":{"a":1}}`, "/labels/a", strictjson.CodeType},
		{"number for bytes", `{"bytes":[1]}`, "/bytes", strictjson.CodeType},
		{"text that is no base64", `{"bytes":"aGk"}`, "/bytes", strictjson.CodeInvalid},
		{"base64 with a line break", `{"bytes":"aG\nk="}`, "/bytes", strictjson.CodeInvalid},
		{"text that is no time", `{"at":"yesterday"}`, "/at", strictjson.CodeInvalid},
		{"too few elements", `{"pair":[1]}`, "/pair", strictjson.CodeInvalid},
		{"too many elements", `{"pair":[1,2,3]}`, "/pair", strictjson.CodeInvalid},
		{"map key that is no number", `{"by_number":{"x":"y"}}`, "/by_number/x", strictjson.CodeInvalid},
		{"map key with a leading zero", `{"by_number":{"01":"y"}}`, "/by_number/01", strictjson.CodeInvalid},
		{"refused by the type's text", `{"colour":"blue"}`, "/colour", strictjson.CodeInvalid},
		{"refused inside a type's own decoder", `{"heat":{"Degrees":1}}`, "/heat/Degrees", strictjson.CodeCase},
		{"string option", `{"quoted":7}`, "/quoted", strictjson.CodeType},
		{"string option around no number", `{"quoted":"x"}`, "", strictjson.CodeInvalid},
		// null is for types that have one.
		{"null string", `{"status":null}`, "/status", strictjson.CodeNull},
		{"null struct", `{"inner":null}`, "/inner", strictjson.CodeNull},
		{"null time", `{"at":null}`, "/at", strictjson.CodeNull},
		{"null id", `{"attempt_id":null}`, "/attempt_id", strictjson.CodeNull},
		{"null body", `null`, "", strictjson.CodeNull},
		// Syntax.
		{"empty", ``, "", strictjson.CodeSyntax},
		{"byte order mark", "\ufeff{}", "", strictjson.CodeSyntax},
		{"cut in a string", `{"status":"x`, "/status", strictjson.CodeSyntax},
		{"cut in an escape", `{"status":"\u00`, "/status", strictjson.CodeSyntax},
		{"bad escape", `{"status":"\x"}`, "/status", strictjson.CodeSyntax},
		{"raw newline in a string", "{\"status\":\"\n\"}", "/status", strictjson.CodeSyntax},
		{"trailing comma in an object", `{"flag":true,}`, "", strictjson.CodeSyntax},
		{"trailing comma in an array", `{"pair":[1,2,]}`, "/pair/2", strictjson.CodeSyntax},
		{"comment", `{/**/}`, "", strictjson.CodeSyntax},
		{"single quotes", `{'flag':true}`, "", strictjson.CodeSyntax},
		{"missing colon", `{"flag" true}`, "", strictjson.CodeSyntax},
		{"bad literal", `{"flag":True}`, "/flag", strictjson.CodeSyntax},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var got body
			err := strictjson.Unmarshal([]byte(row.in), &got)
			own, ok := errors.AsType[*strictjson.Error](err)
			if !ok {
				t.Fatalf("want an *Error, got %v", err)
			}
			if own.Pointer != row.pointer || own.Code != row.code {
				t.Errorf("got %q %s (%s), want %q %s", own.Pointer, own.Code, own.Message, row.pointer, row.code)
			}
			if diff := cmp.Diff(body{}, got); diff != "" {
				t.Errorf("a refused body changed the target:\n%s", diff)
			}
		})
	}
}

func manyMembers(n int) string {
	var parts []string
	for i := range n {
		parts = append(parts, `"k`+string(rune('0'+i%10))+strings.Repeat("x", i/10)+`":0`)
	}
	return strings.Join(parts, ",")
}

func TestLimits(t *testing.T) {
	nest := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	rows := []struct {
		name string
		in   []byte
		opts []strictjson.Option
		code strictjson.Code
	}{
		{"depth 32 by default", nest(32), nil, ""},
		{"depth 33 by default", nest(33), nil, strictjson.CodeTooDeep},
		{"depth by option", nest(3), []strictjson.Option{strictjson.MaxDepth(2)}, strictjson.CodeTooDeep},
		{"a million brackets", []byte(strings.Repeat("[", 1<<20)), nil, strictjson.CodeTooDeep},
		{"just the size", []byte(`"abc"`), []strictjson.Option{strictjson.MaxBytes(5)}, ""},
		{"one byte over", []byte(`"abc" `), []strictjson.Option{strictjson.MaxBytes(5)}, strictjson.CodeTooLarge},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			for form, err := range map[string]error{
				"Check":     strictjson.Check(row.in, row.opts...),
				"Unmarshal": strictjson.Unmarshal(row.in, new(any), row.opts...),
				"Decode":    strictjson.Decode(strings.NewReader(string(row.in)), new(any), row.opts...),
			} {
				code := strictjson.Code("")
				if own, ok := errors.AsType[*strictjson.Error](err); ok {
					code = own.Code
				} else if err != nil {
					t.Fatalf("%s: %v", form, err)
				}
				if code != row.code {
					t.Errorf("%s: got code %q, want %q", form, code, row.code)
				}
			}
		})
	}
}

func TestDecodeReportsReaderErrorsAsTheyAre(t *testing.T) {
	broken := errors.New("connection reset")
	err := strictjson.Decode(iotest.ErrReader(broken), new(any))
	if _, own := errors.AsType[*strictjson.Error](err); own || !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's own error", err)
	}
}

func TestCallerMistakeIsNoBodyError(t *testing.T) {
	for _, v := range []any{nil, body{}, (*body)(nil)} {
		err := strictjson.Unmarshal([]byte(`{}`), v)
		if _, own := errors.AsType[*strictjson.Error](err); own || err == nil {
			t.Errorf("%T: got %v, want an error that blames the caller", v, err)
		}
	}
}

func TestErrorTextNamesThePlace(t *testing.T) {
	err := strictjson.Unmarshal([]byte(`{"Status":"x"}`), new(body))
	if want := `JSON body at /Status: the name must be spelled "status"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEmbeddedFieldsFollowGo(t *testing.T) {
	type Left struct {
		Both  string
		Twice string `json:"twice"`
	}
	type Right struct {
		Both  string
		Twice string
	}
	var v struct {
		*Left
		Right
		Twice int `json:"Twice"`
	}
	for in, code := range map[string]strictjson.Code{
		`{"twice":"x","Twice":1}`: "",
		`{"Both":"x"}`:            strictjson.CodeUnknown, // ambiguous, so no one's
		`{"Twice":"x"}`:           strictjson.CodeType,
	} {
		err := strictjson.Unmarshal([]byte(in), &v)
		own, _ := errors.AsType[*strictjson.Error](err)
		if got := own; (got == nil) != (code == "") || got != nil && got.Code != code {
			t.Errorf("%s: got %v, want code %q", in, err, code)
		}
	}
}
