package executor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/platform-core/execution-plane-service/agent/executor"
)

func TestMessagesComeBackAsTheyWereSent(t *testing.T) {
	seven := 7
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	for _, m := range []executor.Message{
		{Progress: &executor.Progress{Phase: "p", Done: 1, Total: 2, Message: "m\n<&>"}},
		{Evidence: &executor.Evidence{Name: "n", EvidenceType: "api_check", Capability: "c", Result: "failed",
			ObservedAt: at, Source: "stdout", Detail: json.RawMessage(`{"a":[1,null]}`)}},
		{Artifact: &executor.Artifact{Name: "n", ArtifactType: "t", Path: "a/b", Sensitivity: executor.Secret, MediaType: "text/plain"}},
		{Output: &executor.Output{Name: "n", ArtifactType: "t", Path: "x", Sensitivity: executor.Public}},
		{Output: &executor.Output{Name: "n", ArtifactType: "t", Inline: json.RawMessage(`"v"`), Sensitivity: executor.Internal}},
		{Evidence: &executor.Evidence{Name: "wide", EvidenceType: "log_check", Result: "passed", ObservedAt: at,
			Detail: json.RawMessage(`"` + strings.Repeat("<", 16_000) + `"`)}},
		{Fact: &executor.Fact{Kind: executor.FactPolicyDecided, Verdict: "denied", BundleDigest: "b", InputDigest: "i",
			Rules: []string{"r"}, Subject: "10.0.0.1:22", Detail: json.RawMessage(`1`)}},
		{Outcome: &executor.Outcome{Result: executor.TaskFailed, Code: &seven, RecommendedCategory: "unknown", Message: "m"}},
	} {
		line, err := executor.EncodeMessage(m)
		if err != nil {
			t.Fatalf("%s: %v", m.Kind(), err)
		}
		got, err := executor.DecodeMessage(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatalf("%s: %v: %.200s", m.Kind(), err, line)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Errorf("%s: %s", m.Kind(), diff)
		}
	}
}

func TestForbiddenMessages(t *testing.T) {
	evidence := `{"type":"evidence","name":"n","evidence_type":"%s","result":"%s","observed_at":"2026-01-01T00:00:00Z"%s}`
	artifact := `{"type":"artifact","name":"n","artifact_type":"t","path":"%s"%s}`
	for name, line := range map[string]string{
		"no JSON":                 `progress`,
		"no object":               `[1]`,
		"null":                    `null`,
		"two values":              `{"type":"outcome","result":"succeeded"} {}`,
		"no type":                 `{"result":"succeeded"}`,
		"unknown type":            `{"type":"heartbeat"}`,
		"type in another case":    `{"Type":"outcome","result":"succeeded"}`,
		"unknown field":           `{"type":"outcome","result":"succeeded","x":1}`,
		"field in another case":   `{"type":"outcome","Result":"succeeded"}`,
		"repeated field":          `{"type":"outcome","result":"task_failed","result":"succeeded"}`,
		"repeated type":           `{"type":"progress","type":"outcome","result":"succeeded"}`,
		"repeated escaped field":  `{"type":"outcome","result":"task_failed","resul\u0074":"succeeded"}`,
		"repeated deep":           fmt.Sprintf(evidence, "api_check", "passed", `,"detail":{"a":{"b":1,"b":2}}`),
		"wrong type":              `{"type":"progress","phase":"p","done":"1"}`,
		"null for a text":         `{"type":"progress","phase":"p","message":null}`,
		"fraction":                `{"type":"progress","phase":"p","done":1.5}`,
		"invalid UTF-8":           "{\"type\":\"progress\",\"phase\":\"\xff\"}",
		"truncated":               `{"type":"outcome","result":"succeeded"`,
		"done over total":         `{"type":"progress","phase":"p","done":3,"total":2}`,
		"negative":                `{"type":"progress","phase":"p","done":-3}`,
		"no phase":                `{"type":"progress","done":1}`,
		"control character":       `{"type":"progress","phase":"a\u001bb"}`,
		"long text":               `{"type":"progress","phase":"p","message":"` + strings.Repeat("m", 5000) + `"}`,
		"human evidence":          fmt.Sprintf(evidence, "human_verification", "passed", ""),
		"unknown result":          fmt.Sprintf(evidence, "api_check", "ok", ""),
		"no time":                 `{"type":"evidence","name":"n","evidence_type":"api_check","result":"passed"}`,
		"big detail":              fmt.Sprintf(evidence, "api_check", "passed", `,"detail":"`+strings.Repeat("d", 17000)+`"`),
		"deep detail":             fmt.Sprintf(evidence, "api_check", "passed", `,"detail":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)),
		"absolute path":           fmt.Sprintf(artifact, "/etc/passwd", ""),
		"path that leaves":        fmt.Sprintf(artifact, "a/../../b", ""),
		"path of the folder":      fmt.Sprintf(artifact, ".", ""),
		"no path":                 fmt.Sprintf(artifact, "", ""),
		"unknown sensitivity":     fmt.Sprintf(artifact, "a", `,"sensitivity":"confidential"`),
		"inline in an artifact":   fmt.Sprintf(artifact, "a", `,"inline":1`),
		"output without content":  `{"type":"output","name":"n","artifact_type":"t"}`,
		"output with null":        `{"type":"output","name":"n","artifact_type":"t","inline":null}`,
		"output with both":        `{"type":"output","name":"n","artifact_type":"t","path":"a","inline":1}`,
		"secret inline":           `{"type":"output","name":"n","artifact_type":"t","sensitivity":"secret","inline":1}`,
		"big inline":              `{"type":"output","name":"n","artifact_type":"t","inline":"` + strings.Repeat("i", 5000) + `"}`,
		"unknown fact":            `{"type":"fact","kind":"stopped","verdict":"allowed","bundle_digest":"b"}`,
		"claim of a crash":        `{"type":"outcome","result":"executor_crashed"}`,
		"unknown category":        `{"type":"outcome","result":"succeeded","recommended_category":"fine"}`,
		"NUL in the outcome text": `{"type":"outcome","result":"succeeded","message":"a\u0000"}`,
	} {
		if m, err := executor.DecodeMessage([]byte(line)); err == nil {
			t.Errorf("%s was taken as %s", name, m.Kind())
		}
	}
}

func TestDecodeNeverPanicsAndEncodesWhatItTook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.OneOf(
			rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.StringMatching(`\{"type":"(progress|outcome|artifact)"(,"[a-z_]{1,8}":("[a-z]{0,4}"|[0-9]{1,3}|null)){0,4}\}`),
				func(s string) []byte { return []byte(s) }),
		).Draw(t, "line")
		m, err := executor.DecodeMessage(line)
		if err != nil {
			return
		}
		if _, err := executor.EncodeMessage(m); err != nil {
			t.Fatalf("took %q and cannot encode it: %v", line, err)
		}
	})
}

// take runs lines through a new intake.
func take(input string) (kinds []string, codes []string) {
	_ = executor.NewIntake().Run(strings.NewReader(input),
		func(m executor.Message) { kinds = append(kinds, m.Kind()) },
		func(v executor.Violation) { codes = append(codes, v.Code) })
	return kinds, codes
}

func TestIntakeHoldsTheBounds(t *testing.T) {
	const ok = `{"type":"outcome","result":"succeeded"}`
	file := func(name, path, s string) string {
		return fmt.Sprintf(`{"type":"artifact","name":%q,"artifact_type":"t","path":%q,"sensitivity":%q}`+"\n", name, path, s)
	}
	for name, tc := range map[string]struct {
		input        string
		kinds, codes []string
	}{
		"empty lines":        {"\n\r\n  \n" + ok + "\r\n", []string{"outcome"}, nil},
		"no last newline":    {ok, []string{"outcome"}, nil},
		"too long, then on":  {strings.Repeat("x", 200_000) + "\n" + ok + "\n", []string{"outcome"}, []string{"too_long"}},
		"too long to end":    {strings.Repeat("x", 200_000), nil, []string{"too_long"}},
		"second outcome":     {ok + "\n" + `{"type":"outcome","result":"task_failed"}` + "\n", []string{"outcome"}, []string{"after_outcome"}},
		"broken, then valid": {"{}\n" + ok + "\n", []string{"outcome"}, []string{"malformed"}},
		"same name":          {file("a", "x", "public") + file("a", "y", "public"), []string{"artifact"}, []string{"duplicate_name"}},
		"lowered":            {file("a", "x", "secret") + file("b", "./x", "public"), []string{"artifact"}, []string{"lowered_sensitivity"}},
		"raised":             {file("a", "x", "public") + file("b", "x", "secret"), []string{"artifact", "artifact"}, nil},
	} {
		kinds, codes := take(tc.input)
		if diff := cmp.Diff(tc.kinds, kinds) + cmp.Diff(tc.codes, codes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestIntakeCounts(t *testing.T) {
	var in strings.Builder
	for i := range executor.MaxEvidence + 5 {
		fmt.Fprintf(&in, `{"type":"evidence","name":"n%d","evidence_type":"api_check","result":"passed","observed_at":"2026-01-01T00:00:00Z"}`+"\n", i)
	}
	in.WriteString(`{"type":"outcome","result":"succeeded"}` + "\n")
	kinds, codes := take(in.String())
	if len(kinds) != executor.MaxEvidence+1 || kinds[len(kinds)-1] != "outcome" || len(codes) != 5 || codes[0] != "too_many" {
		t.Errorf("%d messages, %d violations", len(kinds), len(codes))
	}
}

func TestRaise(t *testing.T) {
	for _, tc := range [][3]executor.Sensitivity{
		{executor.Public, executor.Secret, executor.Secret},
		{executor.Secret, executor.Public, executor.Secret},
		{executor.Internal, executor.Public, executor.Internal},
	} {
		if got := executor.Raise(tc[0], tc[1]); got != tc[2] {
			t.Errorf("Raise(%s, %s) = %s", tc[0], tc[1], got)
		}
	}
}
