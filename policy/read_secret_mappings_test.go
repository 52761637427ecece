package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mapping gives one rule that loads, then changed: each change is a field with
// its new value, or with none to leave it out.
func mapping(name string, changes ...string) string {
	lines := []string{"- name: " + name, "reference: vault://kv/app/*", "job_types: [ansible]", "actions: ['*']", "environments: [prod]", "policies: [p]", "token_role: r"}
	for _, c := range changes {
		field, value, _ := strings.Cut(c, ": ")
		at := len(lines)
		for i, l := range lines {
			if strings.HasPrefix(strings.TrimPrefix(l, "- "), field+":") {
				at = i
			}
		}
		if at == len(lines) {
			lines = append(lines, "")
		}
		lines[at] = c
		if value == "" {
			lines = append(lines[:at], lines[at+1:]...)
		}
	}
	return strings.Join(lines, "\n  ") + "\n"
}

func TestMistakesInSecretMappings(t *testing.T) {
	const store = "store: vault://kv/x/{attempt_id}/{artifact_name}"
	reference := func(s string) string { return mapping("a", "reference: "+s) }
	template := func(s string) string { return mapping("a", "reference", "store: "+s) }
	tests := []struct {
		name, rules string
		want        []string
	}{
		{"fine", mapping("a") + mapping("b", "reference: vault://kv/app/**") + mapping("c", "reference", store), nil},
		{"fine with all fields", mapping("a", "mount: kv/app", "fields: [x]", "engine: dynamic", "parameters: {ip: 10.0.0.1}", "allow_unmasked: true"), nil},
		{"one reference for different jobs", mapping("a") + mapping("b", "environments: [dev]") + mapping("c", "job_types: [ssh]"), nil},
		{"one reference for different actions", mapping("a", "actions: ['ansible.a*']") + mapping("b", "actions: ['ansible.b*']"), nil},
		{"not an object", "- a\n", []string{"x.yaml:2: secret mapping must be an object of fields"}},
		{"unknown field", mapping("a", "path: x"), []string{`x.yaml:9: secret mapping: unknown field "path" (known: actions, allow_unmasked, artifacts, engine, environments, fields, job_types, mount, name, parameters, policies, readers, reference, store, token_role, when)`}},
		{"all missing", "- name: a\n", []string{
			`x.yaml:2: secret mapping: field "job_types" is missing`, `x.yaml:2: secret mapping: field "actions" is missing`, `x.yaml:2: secret mapping: field "environments" is missing`,
			`x.yaml:2: secret mapping: field "policies" is missing`, `x.yaml:2: secret mapping: field "token_role" is missing`,
			"x.yaml:2: secret mapping: give reference (what may be read) or store (where secret artifacts go)"}},
		{"all at once", mapping("a", "reference: vault://kv", "policies: [ROOT]", "token_role: a/b", "job_types: [shh]"), []string{
			"x.yaml:3: secret mapping reference: there is no path after the mount", `x.yaml:4: secret mapping job_types: "shh" is no job type (known: ansible, kubernetes, helm, opentofu, ssh, verification)`,
			"x.yaml:7: secret mapping policies: the policy root is given to no job", "x.yaml:8: secret mapping token_role: the name has a character other than letters, digits and -._~@:=,"}},
		{"half a star", reference("vault://kv/app-*"), []string{"x.yaml:3: secret mapping reference: a star stands for a whole segment: write * or **, or spell the segment out"}},
		{"** in the middle", reference("vault://kv/**/db"), []string{"x.yaml:3: secret mapping reference: ** stands at the end only"}},
		{"star for the mount", reference("vault://*/db"), []string{"x.yaml:3: secret mapping reference: the mount has no star: write a mapping for each mount"}},
		{"field in the reference", reference("vault://kv/db#x"), []string{"x.yaml:3: secret mapping reference: a pattern has no field and no version: name fields under fields"}},
		{"mount of Vault's own", reference("vault://sys/**"), []string{"x.yaml:3: secret mapping reference: the mount sys is Vault's own"}},
		{"percent", reference("vault://kv/%61"), []string{"x.yaml:3: secret mapping reference: a segment has a character other than letters, digits and -._~@:=,"}},
		{"mount elsewhere", mapping("a", "mount: team/kv"), []string{"x.yaml:9: secret mapping mount: the mount does not lie at the beginning of the reference, spelt out and with a path after it"}},
		{"mount over a star", mapping("a", "mount: kv/app/*"), []string{"x.yaml:9: secret mapping mount: the mount does not lie at the beginning of the reference, spelt out and with a path after it"}},
		{"mount with a slash", mapping("a", "mount: kv/"), []string{"x.yaml:9: secret mapping mount: the mount does not lie at the beginning of the reference, spelt out and with a path after it"}},
		{"no policy", mapping("a", "policies: []"), []string{"x.yaml:7: secret mapping policies is empty, so the rule would match nothing: name something or remove the rule"}},
		{"policy in capitals", mapping("a", "policies: [Read]"), []string{"x.yaml:7: secret mapping policies: a name has lower-case letters, digits and -._~@:=,/ only"}},
		{"unknown engine", mapping("a", "engine: kv3"), []string{`x.yaml:9: secret mapping engine: "kv3" is none of kv1, kv2, dynamic`}},
		{"field with a star", mapping("a", "fields: ['*']"), []string{"x.yaml:9: secret mapping fields: a name has a character other than letters, digits and -._~@:=,; fields are spelt out"}},
		{"text for true", mapping("a", "allow_unmasked: 'yes'"), []string{"x.yaml:9: secret mapping allow_unmasked must be true or false"}},
		{"parameters of kv", mapping("a", "engine: kv2", "parameters: {a: b}"), []string{"x.yaml:3: secret mapping: parameters need engine: dynamic"}},
		{"parameter that is no text", mapping("a", "engine: dynamic", "parameters: {a: 1}"), []string{"x.yaml:10: secret mapping parameters.a must be text: put it in quotes"}},
		{"both kinds", mapping("a", store), []string{"x.yaml:9: secret mapping: reference and store are two mappings: write each on its own"}},
		{"readers of a reference", mapping("a", "readers: [viewer]"), []string{"x.yaml:9: secret mapping: artifacts and readers belong to a mapping with store"}},
		{"fields of a store", mapping("a", "reference", store, "fields: [a]"), []string{"x.yaml:9: secret mapping: fields, parameters and allow_unmasked belong to a mapping with reference"}},
		{"store in kv1", mapping("a", "reference", store, "engine: kv1"), []string{"x.yaml:8: secret mapping: secret artifacts are stored in kv2 only"}},
		{"unknown reader", mapping("a", "reference", store, "readers: [runner]"), []string{`x.yaml:9: secret mapping readers: "runner" is none of control-plane, auditor, viewer, operator`}},
		{"store without attempt", template("vault://kv/{artifact_name}"), []string{"x.yaml:8: secret mapping store: {attempt_id} must be in it and {artifact_name} must be its end, else two artifacts would meet in one place"}},
		{"store with a name inside", template("vault://kv/{artifact_name}/{attempt_id}"), []string{"x.yaml:8: secret mapping store: {attempt_id} must be in it and {artifact_name} must be its end, else two artifacts would meet in one place"}},
		{"unknown placeholder", template("vault://kv/{job}/{attempt_id}/{artifact_name}"), []string{"x.yaml:8: secret mapping store: a placeholder is a whole segment, {operation_id}, {attempt_id} or {artifact_name}"}},
		{"part of a segment", template("vault://kv/a-{attempt_id}/{artifact_name}"), []string{"x.yaml:8: secret mapping store: a placeholder is a whole segment, {operation_id}, {attempt_id} or {artifact_name}"}},
		{"placeholder twice", template("vault://kv/{attempt_id}/{attempt_id}/{artifact_name}"), []string{"x.yaml:8: secret mapping store: {attempt_id} stands twice"}},
		{"placeholder for the mount", template("vault://{attempt_id}/{artifact_name}"), []string{"x.yaml:8: secret mapping store: the mount has no placeholder"}},
		{"mount over a placeholder", mapping("a", "reference", store, "mount: kv/x/{attempt_id}"), []string{"x.yaml:9: secret mapping mount: the mount does not lie at the beginning of the reference, spelt out and with a path after it"}},
		{"star in a store", template("vault://kv/*/{attempt_id}/{artifact_name}"), []string{"x.yaml:8: secret mapping store: a segment has a character other than letters, digits and -._~@:=,"}},
		{"name twice", mapping("a") + mapping("a", "reference: vault://kv/b"), []string{`x.yaml:9: rule id "secret_mappings/a" is used already at x.yaml:2: give this rule an id of its own`}},
		{"one reference for one job", mapping("a", "environments: ['st*']") + mapping("b", "environments: ['*ge', dev]"), []string{
			`x.yaml:9: secret mapping "b" and "a" (x.yaml:2) have one reference and could both apply to one job: narrow environments, job_types or actions`}},
		{"two stores for one artifact", mapping("a", "reference", store, "artifacts: ['kube*']") + mapping("b", "reference", store), []string{
			`x.yaml:10: secret mapping "b" and "a" (x.yaml:2) could both store one artifact: narrow artifacts, environments, job_types or actions`}},
		{"two stores for two artifacts", mapping("a", "reference", store, "artifacts: ['kube*']") + mapping("b", "reference", store, "artifacts: ['ssh*']"), nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			content := "secret_mappings:\n" + tc.rules
			if tc.want == nil {
				bundle(t, "x.yaml", content)
				return
			}
			if diff := cmp.Diff(tc.want, mistakes(t, content)); diff != "" {
				t.Errorf("mistakes (-want +got):\n%s\n%s", diff, content)
			}
		})
	}
}
