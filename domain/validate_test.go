package domain_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/domain"
)

// goodSpec is a spec that uses every field that this release supports.
func goodSpec() *domain.JobSpec {
	c := sampleCreated()
	return &domain.JobSpec{
		OperationID: operationA, PlanNodeID: "probe", AttemptID: attemptA, JobType: "verification", Action: "verify.tcp.connect",
		RetryOf: c.RetryOf, RequestedBy: c.RequestedBy, Labels: c.Labels, Runner: &c.Runner,
		Target: domain.Target{Environment: "lab", Resources: []domain.Resource{{
			ResourceID: "db-1", ResourceType: "postgres", Binding: &domain.Binding{Address: "10.0.0.1", Port: 5432, User: "u", AccessSecret: "db"},
		}}},
		Inputs: domain.Inputs{
			Parameters: json.RawMessage(`{}`), Capabilities: []string{"postgres"},
			Secrets: []domain.SecretInput{{Name: "db", SecretRef: "vault://kv/db#password?version=2"}},
		},
		OutputContract: c.Contract,
		Controls: domain.Controls{TimeoutSeconds: 60, QueueTimeoutSeconds: 60, IdleTimeoutSeconds: 30, CancelGraceSeconds: 5, Priority: 9,
			RetryPolicyRef: "retry/default", AllowedCommandsRef: "policy/approved-commands", OperationPolicyRef: "p", CallbackRef: "ops"},
	}
}

func TestGoodSpecHasNoViolations(t *testing.T) {
	limits := domain.DefaultControlLimits()
	if v := goodSpec().Validate(limits); len(v) != 0 {
		t.Fatalf("%+v", v)
	}
	least := &domain.JobSpec{OperationID: operationA, PlanNodeID: "n", AttemptID: attemptA, JobType: "ssh", Action: "ssh.x",
		Target: domain.Target{Environment: "lab", Resources: []domain.Resource{{ResourceID: "a", ResourceType: "host"}}}, Controls: domain.Controls{TimeoutSeconds: 1}}
	if v := least.Validate(limits); len(v) != 0 {
		t.Fatalf("%+v", v)
	}
	if least.RunnerName() != "ssh-runner" || least.Isolation() != "process" {
		t.Errorf("defaults %s, %s", least.RunnerName(), least.Isolation())
	}
	least.Runner = &domain.RunnerRequest{Name: "own", Isolation: "container"}
	if least.RunnerName() != "own" || least.Isolation() != "container" {
		t.Errorf("asked for %s, %s", least.RunnerName(), least.Isolation())
	}
}

func many[T any](n int, of func(i int) T) []T {
	var out []T
	for i := range n {
		out = append(out, of(i))
	}
	return out
}

func pairsOf(n int, value string) map[string]string {
	return maps.Collect(func(yield func(string, string) bool) {
		for i := range n {
			if !yield(fmt.Sprintf("k%02d", i), value) {
				return
			}
		}
	})
}

// badSpec is one change that breaks a good spec, and what is then said of it.
type badSpec struct {
	name   string
	change func(*domain.JobSpec)
	want   string // pointer and code, more of them after commas
}

func badSpecs() []badSpec {
	long := strings.Repeat("x", 201)
	artifact := func(ref, sum string) func(*domain.JobSpec) {
		return func(s *domain.JobSpec) {
			s.Inputs.Artifacts = []domain.ArtifactInput{{Name: "plan", ArtifactRef: ref, SHA256: sum}}
		}
	}
	return []badSpec{
		{"no operation", func(s *domain.JobSpec) { s.OperationID = domain.OperationID{} }, "/operation_id required"},
		{"no attempt", func(s *domain.JobSpec) { s.AttemptID = domain.AttemptID{} }, "/attempt_id required"},
		{"no node", func(s *domain.JobSpec) { s.PlanNodeID = "" }, "/plan_node_id required"},
		{"long node", func(s *domain.JobSpec) { s.PlanNodeID = long }, "/plan_node_id max_length"},
		{"NUL in node", func(s *domain.JobSpec) { s.PlanNodeID = "a\x00b" }, "/plan_node_id pattern"},
		{"not UTF-8", func(s *domain.JobSpec) { s.PlanNodeID = "a\xff" }, "/plan_node_id pattern"},
		{"no type", func(s *domain.JobSpec) { s.JobType = "" }, "/job_type required"},
		{"other type", func(s *domain.JobSpec) { s.JobType = "Verification" }, "/job_type enum"},
		{"no action", func(s *domain.JobSpec) { s.Action = "" }, "/action required"},
		{"foreign action", func(s *domain.JobSpec) { s.Action = "ssh.run" }, "/action prefix"},
		{"type is not the prefix of verification", func(s *domain.JobSpec) { s.Action = "verification.tcp" }, "/action prefix"},
		{"retry of itself", func(s *domain.JobSpec) { s.RetryOf = &s.AttemptID }, "/retry_of self"},
		{"requested by whom", func(s *domain.JobSpec) { s.RequestedBy = &domain.Principal{Kind: "robot"} }, "/requested_by/id required,/requested_by/kind enum"},
		{"17 labels", func(s *domain.JobSpec) { s.Labels = pairsOf(17, "v") }, "/labels max_items"},
		{"label name", func(s *domain.JobSpec) { s.Labels = map[string]string{"a/~b c": "v"} }, "/labels/a~1~0b c pattern"},
		{"label value", func(s *domain.JobSpec) { s.Labels = map[string]string{"a": long} }, "/labels/a max_length"},
		{"no environment", func(s *domain.JobSpec) { s.Target.Environment = "" }, "/target/environment required"},
		{"environment", func(s *domain.JobSpec) { s.Target.Environment = "my lab" }, "/target/environment pattern"},
		{"1001 resources", func(s *domain.JobSpec) {
			s.Target.Resources = many(1001, func(i int) domain.Resource { return domain.Resource{ResourceID: fmt.Sprint(i), ResourceType: "t"} })
		}, "/target/resources max_items"},
		{"resource without id and type", func(s *domain.JobSpec) { s.Target.Resources = make([]domain.Resource, 1) }, "/target/resources/0/resource_id required,/target/resources/0/resource_type required"},
		{"resource twice", func(s *domain.JobSpec) { s.Target.Resources = append(s.Target.Resources, s.Target.Resources[0]) }, "/target/resources/1/resource_id unique"},
		{"no address", func(s *domain.JobSpec) { s.Target.Resources[0].Binding.Address = "" }, "/target/resources/0/binding/address required"},
		{"long address", func(s *domain.JobSpec) { s.Target.Resources[0].Binding.Address = strings.Repeat("x", 254) }, "/target/resources/0/binding/address max_length"},
		{"port", func(s *domain.JobSpec) { s.Target.Resources[0].Binding.Port = 65536 }, "/target/resources/0/binding/port range"},
		{"negative port", func(s *domain.JobSpec) { s.Target.Resources[0].Binding.Port = -1 }, "/target/resources/0/binding/port range"},
		{"secret that is not there", func(s *domain.JobSpec) { s.Target.Resources[0].Binding.AccessSecret = "no" }, "/target/resources/0/binding/access_secret reference"},
		{"artifact without an id", artifact("artifact://plan", ""), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact with an id of another spelling", artifact("artifact://"+strings.ToUpper(attemptA.String()), ""), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact of the operation without a name", artifact("artifact://operation/", ""), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact of the operation with a long name", artifact("artifact://operation/"+long, ""), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact with a line end", artifact("artifact://operation/plan\n", ""), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact with a long reference", artifact("s3://b/"+strings.Repeat("k/", 600), digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact from S3 without a digest", artifact("s3://b/k", ""), "/inputs/artifacts/0/sha256 required"},
		{"artifact from S3 without a bucket", artifact("s3:///k", digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact from S3 without a key", artifact("s3://b", digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact from S3 that climbs", artifact("s3://b/in/../out", digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact from S3 with an empty part", artifact("s3://b/in//x", digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact named as a package", func(s *domain.JobSpec) {
			s.Inputs.Artifacts = []domain.ArtifactInput{{Name: "package:" + digestA, ArtifactRef: "artifact://operation/plan"}}
		}, "/inputs/artifacts/0/name reserved"},
		{"101 artifacts", func(s *domain.JobSpec) {
			s.Inputs.Artifacts = many(101, func(i int) domain.ArtifactInput {
				return domain.ArtifactInput{Name: fmt.Sprint(i), ArtifactRef: "artifact://operation/plan"}
			})
		}, "/inputs/artifacts max_items"},
		{"artifact from elsewhere", artifact("https://x/y", digestA), "/inputs/artifacts/0/artifact_ref scheme"},
		{"artifact from nowhere", artifact("", digestA), "/inputs/artifacts/0/artifact_ref required"},
		{"artifact digest", artifact("artifact://operation/x", strings.ToUpper(digestA)), "/inputs/artifacts/0/sha256 pattern"},
		{"a retry of nothing", func(s *domain.JobSpec) { s.RetryOf = &domain.AttemptID{} }, "/retry_of required"},
		{"secret twice", func(s *domain.JobSpec) { s.Inputs.Secrets = append(s.Inputs.Secrets, s.Inputs.Secrets[0]) }, "/inputs/secrets/1/name unique"},
		{"secret's name", func(s *domain.JobSpec) {
			s.Inputs.Secrets = append(s.Inputs.Secrets, domain.SecretInput{Name: "-x", SecretRef: "vault://a/b"})
		}, "/inputs/secrets/1/name pattern"},
		{"long secret reference", func(s *domain.JobSpec) { s.Inputs.Secrets[0].SecretRef = "vault://" + strings.Repeat("x", 1000) }, "/inputs/secrets/0/secret_ref scheme"},
		{"capability", func(s *domain.JobSpec) { s.Inputs.Capabilities = []string{"a", ""} }, "/inputs/capabilities/1 required"},
		{"promise twice", func(s *domain.JobSpec) { s.OutputContract.Evidence = []string{"a", "a"} }, "/output_contract/evidence/1 unique"},
		{"promise without a name", func(s *domain.JobSpec) { s.OutputContract.Capabilities = []string{""} }, "/output_contract/capabilities/0 required"},
		{"promise's name", func(s *domain.JobSpec) { s.OutputContract.Artifacts = []string{"a b"} }, "/output_contract/artifacts/0 pattern"},
		{"101 promises", func(s *domain.JobSpec) {
			s.OutputContract.Evidence = many(101, func(i int) string { return fmt.Sprint(i) })
		}, "/output_contract/evidence max_items"},
		{"no timeout", func(s *domain.JobSpec) { s.Controls.TimeoutSeconds = 0 }, "/controls/timeout_seconds range"},
		{"long timeout", func(s *domain.JobSpec) { s.Controls.TimeoutSeconds = 86401 }, "/controls/timeout_seconds range"},
		{"queue timeout", func(s *domain.JobSpec) { s.Controls.QueueTimeoutSeconds = -1 }, "/controls/queue_timeout_seconds range"},
		{"idle timeout", func(s *domain.JobSpec) { s.Controls.IdleTimeoutSeconds = 86401 }, "/controls/idle_timeout_seconds range"},
		{"grace", func(s *domain.JobSpec) { s.Controls.CancelGraceSeconds = 3601 }, "/controls/cancel_grace_seconds range"},
		{"priority", func(s *domain.JobSpec) { s.Controls.Priority = 10 }, "/controls/priority range"},
		{"policy names", func(s *domain.JobSpec) {
			s.Controls.RetryPolicyRef, s.Controls.AllowedCommandsRef, s.Controls.OperationPolicyRef, s.Controls.CallbackRef = " ", "../x", "a b", "\n"
		}, "/controls/allowed_commands_ref pattern,/controls/callback_ref pattern,/controls/operation_policy_ref pattern,/controls/retry_policy_ref pattern"},
		{"runner's name", func(s *domain.JobSpec) { s.Runner.Name = "a b" }, "/runner/name pattern"},
		{"isolation", func(s *domain.JobSpec) { s.Runner.Isolation = "vm" }, "/runner/isolation enum"},
		{"required labels", func(s *domain.JobSpec) { s.Runner.Requirements.Labels = pairsOf(17, "v") }, "/runner/requirements/labels max_items"},
		{"17 tools", func(s *domain.JobSpec) { s.Runner.Requirements.Tools = pairsOf(17, "1") }, "/runner/requirements/tools max_items"},
		{"tool's version", func(s *domain.JobSpec) { s.Runner.Requirements.Tools = map[string]string{"a/b": ">=new"} }, "/runner/requirements/tools/a~1b constraint"},
		{"tool's name", func(s *domain.JobSpec) { s.Runner.Requirements.Tools = map[string]string{"": "1"} }, "/runner/requirements/tools/ constraint"},
	}
}

func TestEachViolation(t *testing.T) {
	for _, c := range badSpecs() {
		t.Run(c.name, func(t *testing.T) {
			s := goodSpec()
			c.change(s)
			var got []string
			for _, v := range domain.SortViolations(s.Validate(domain.DefaultControlLimits())) {
				got = append(got, v.Pointer+" "+v.Code)
				if v.Message == "" {
					t.Errorf("%s has no message", v.Pointer)
				}
			}
			if d := cmp.Diff(strings.Split(c.want, ","), got); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestSecretValueIsRefusedAndNeverRepeated: who puts a value where a reference
// belongs must not find it in an answer or a log.
func TestSecretValueIsRefusedAndNeverRepeated(t *testing.T) {
	for _, value := range []string{"hunter2hunter2", "s.ABCDEFGHIJKLMNOP", "-----BEGIN OPENSSH PRIVATE KEY-----", "postgres://u:hunter2hunter2@h/db", "VAULT://kv/x", " vault://kv/x"} {
		s := goodSpec()
		s.Inputs.Secrets[0].SecretRef = value
		v := s.Validate(domain.DefaultControlLimits())
		if len(v) != 1 || v[0].Pointer != "/inputs/secrets/0/secret_ref" || v[0].Code != "scheme" {
			t.Errorf("%d violations for a value", len(v))
			continue
		}
		if b, err := json.Marshal(v); err != nil || strings.Contains(string(b), value) {
			t.Errorf("the answer repeats the value: %s %v", b, err)
		}
	}
}

func TestAllViolationsAreSaidAtOnce(t *testing.T) {
	v := (&domain.JobSpec{}).Validate(domain.DefaultControlLimits())
	var got []string
	for _, x := range v {
		got = append(got, x.Pointer)
	}
	want := []string{"/operation_id", "/attempt_id", "/plan_node_id", "/job_type", "/action", "/target/environment", "/controls/timeout_seconds"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestEffectiveClocks(t *testing.T) {
	s := goodSpec()
	limits := domain.DefaultControlLimits()
	got := domain.EffectiveClocks(s, domain.DefaultProfile(), limits, 5*time.Second)
	want := domain.Clocks{Profile: "default", QueueSeconds: 60, OfferSeconds: 15, RunSeconds: 60, IdleSeconds: 30, StopSeconds: 5,
		LeaseSeconds: 85, UploadSeconds: 600, SalvageSeconds: 600, ReofferSeconds: 5, MaxOffers: 5}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	s.Controls = domain.Controls{TimeoutSeconds: 60}
	for name, c := range map[string]struct{ lease, offer, stop, upload, salvage int }{
		"default/verification": {90, 15, 10, 600, 600}, "default/opentofu": {170, 15, 90, 600, 600}, "default/ansible": {110, 15, 30, 600, 600}, "default/ssh": {100, 15, 20, 600, 600},
		"fast/verification": {20, 5, 6, 20, 5}, "fast/ssh": {29, 5, 15, 20, 5}, "fast/ansible": {34, 5, 20, 20, 5},
	} {
		profile, jobType, _ := strings.Cut(name, "/")
		p, ok := domain.ProfileByName(profile)
		s.JobType = jobType
		k := domain.EffectiveClocks(s, p, limits, time.Second)
		if got := (struct{ lease, offer, stop, upload, salvage int }{k.LeaseSeconds, k.OfferSeconds, k.StopSeconds, k.UploadSeconds, k.SalvageSeconds}); !ok || got != c {
			t.Errorf("%s: %+v, want %+v", name, got, c)
		}
		if time.Duration(k.LeaseSeconds)*time.Second != p.Lease(jobType) || k.QueueSeconds != 3600 {
			t.Errorf("%s: lease %d, queue %d", name, k.LeaseSeconds, k.QueueSeconds)
		}
	}
	if _, ok := domain.ProfileByName("slow"); ok {
		t.Error("there is no such profile")
	}
}

func TestConstraints(t *testing.T) {
	for _, c := range []struct {
		constraint, version string
		want                bool
	}{
		{">=2.17", "2.17", true}, {">=2.17", "2.17.0", true}, {">=2.17", "2.16.9", false}, {">=2.17", "2.9", false},
		{">=2.17,<3", "2.99", true}, {">=2.17, <3", "3.0", false}, {"1.2", "1.2.0", true}, {"=1.2", "1.2.1", false},
		{"!=1.2", "1.2", false}, {"!=1.2", "1.3", true}, {">1", "1.0", false}, {"<=1", "v1.0", true}, {">=v1", "1", true},
		{">=1.6", "1.6.0-rc1", true}, {">=1", "unknown", false}, {">=1", "", false},
	} {
		k, err := domain.ParseConstraint(c.constraint)
		if err != nil {
			t.Errorf("%s: %v", c.constraint, err)
		} else if got := k.Allows(c.version); got != c.want {
			t.Errorf("%s allows %q: %v", c.constraint, c.version, got)
		}
	}
	for _, bad := range []string{"", ",", ">=", ">=1,", "latest", "1..2", "1.", ".1", ">=-1", "=>1", "1.x", "+1", "-0", "1.+2", "99999999999999999999", "１.2"} {
		if _, err := domain.ParseConstraint(bad); err == nil {
			t.Errorf("%q was read as a constraint", bad)
		}
	}
	if types := domain.JobTypes(); len(types) != 6 || domain.ActionPrefix("verification") != "verify" || domain.ActionPrefix("helm") != "helm" {
		t.Errorf("job types %v", types)
	}
}
