package domain_test

import (
	"encoding/json"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

func ended(category domain.Category, code domain.FailureCode) domain.Ended {
	return domain.Ended{
		Category: category, FailureCode: code, Code: ptr(143), Recommended: domain.CategoryInfrastructure, SideEffects: "possible",
		StartedAt: ptr(sec(20)), FinishedAt: sec(40),
		Stop:           &domain.StopSummary{Reason: domain.StopCancel, RequestedAt: sec(30), Proof: domain.ProofReaped},
		ManifestSHA256: digestB, BundleState: "complete", LogBytes: 1048600, Artifacts: 2, Evidence: 3,
	}
}

func sampleClaim() domain.Claim {
	return domain.Claim{
		Result: "task_failed", Launched: true, Code: ptr(2), Recommended: domain.CategoryInfrastructure, FinishedAt: sec(39),
		Logs: []domain.ClaimedLog{{Stream: "stdout", Bytes: 1048600, SHA256: digestA}}, Artifacts: 2,
	}
}

func sampleScan() domain.Scan {
	return domain.Scan{Scanner: "fingerprint/1", Prints: 412, Certain: 8, Objects: 7, Texts: 3, Events: 21, Bytes: 1048576, Skipped: []string{"kubeconfig: encrypted"}}
}

func sampleAccess() domain.Access {
	return domain.Access{AttemptID: attemptA, Object: "secret_artifact", Name: "kubeconfig", Minute: sec(60), BundleDigest: digestB,
		Rules: []string{"secret_mappings/kubeconfigs"}, Reasons: []string{"secret_reader_not_allowed"}}
}

func sampleCreated() domain.Created {
	c := created()
	c.RetryOf = ptr(domain.NewID[domain.AttemptID](uuid.MustParse("0a000000-0000-4000-8000-000000000009")))
	c.SpecText = domain.TextRef(digestB)
	c.Resources = []domain.CreatedResource{{ResourceID: "db-1", ResourceType: "postgres"}}
	c.RequestedBy = &domain.Principal{Kind: "user", ID: "ada"}
	c.Labels = map[string]string{"organization_id": "org-7"}
	c.Runner = domain.RunnerRequest{Name: "verification-runner", Isolation: "process", Requirements: &domain.RunnerRequirements{
		Labels: map[string]string{"zone": "a"}, Tools: map[string]string{"ansible-core": ">=2.17"}}}
	c.Contract = domain.OutputContract{Capabilities: []string{"postgres.ready"}, Artifacts: []string{"samples"}, Evidence: []string{"port-open"}}
	c.Secrets = []domain.SecretInput{{Name: "db", SecretRef: "vault://kv/db#password"}}
	c.Artifacts = []domain.InputArtifact{{Name: "plan", Ref: "artifact://operation/plan", SHA256: digestA, Bytes: 4096, ID: domain.ArtifactIDOf(*c.RetryOf, "plan"), AttemptID: *c.RetryOf}}
	c.RetryPolicy, c.Commands, c.Operation, c.Callback = "retry/default", "policy/approved-commands", "policy/apply", "ops"
	c.Destructive, c.Priority = true, 5
	c.Clocks.IdleSeconds = 120
	return c
}

// samples are one of every event, every field set: what the golden files hold.
func samples() []domain.Event {
	soon := sec(3600)
	runner := domain.RunnerRegistered{
		RunnerID: runnerA, Name: "verification-runner", Version: "1.2.3", BinaryDigest: digestA, Pool: "lab", Host: "host-1",
		JobTypes: []string{"verification"}, Actions: []string{"verify.tcp.connect"}, Environments: []string{"lab"},
		Labels: map[string]string{"zone": "a"}, Tools: map[string]string{"openssh": "9.9"}, Isolation: []string{"process"},
		Slots: 4, Approved: true, PolicyDigest: digestB, TokenID: tokenA, Incarnation: 2,
	}
	enrolment := domain.NewID[domain.EnrolmentID](uuid.MustParse("0e000000-0000-4000-8000-000000000001"))
	why := domain.TextRef(digestA)
	answer := domain.CallbackAnswer{Round: 1, Try: 2, Status: 503, LatencyMS: 12, ResponseBytes: 34, ResponseSHA256: digestB}
	refused := domain.NewID[domain.EventID](uuid.MustParse("4bf39cc4-9130-537a-8563-035bf6250fd4"))
	return []domain.Event{
		sampleCreated(),
		domain.PolicyDecided{At: "runner", Verdict: "deny", BundleDigest: digestB, InputDigest: digestA, Rules: []string{"targets/lab"}, Reasons: []string{"target_not_allowed"}, Epoch: 1},
		domain.PrivilegesGranted{At: "runner", Privileges: []string{"destructive", "sudo"}, BundleDigest: digestB, InputDigest: digestA, Rules: []string{"commands/approved/restart"}, Epoch: 1},
		leasedAt(1, 10).Event,
		domain.Started{Epoch: 1, LeaseUntil: sec(110), Isolation: "process"},
		domain.Heartbeat{Epoch: 1, LeaseUntil: sec(140)},
		domain.Progressed{Epoch: 1, Phase: "probe", Done: 1, Total: 3, Message: why},
		domain.StopRequested{Reason: domain.StopCancel, ReasonText: why, Deadline: ptr(sec(70))},
		domain.LeaseReleased{Epoch: 1, Reason: "requeue", ReasonText: why},
		domain.LeaseExpired{Epoch: 1, Started: true, Cause: "lease_timeout"},
		domain.LogStored{Epoch: 1, Stream: "stdout", Offset: 1048576, Bytes: 24, Key: "operations/op/logs/stdout/1048576", SHA256: digestA, ObjectBytes: 44, Salvaged: true},
		domain.EvidenceRecorded{Epoch: 1, ID: evidenceA, Name: "port-open", Type: "api_check", Capability: "postgres.ready", Result: "passed", Source: "samples", ObservedAt: sec(30), Detail: why},
		domain.ArtifactCreated{Epoch: 1, ID: domain.ArtifactIDOf(attemptA, "samples"), Name: "samples", Type: "report", Output: true, Storage: "inline_metadata", URI: "inline:samples", Key: "operations/op/outputs/samples", Sensitivity: "internal", MediaType: "application/json", Bytes: 14, SHA256: digestA, Inline: json.RawMessage(`{"samples":[3]}`), Salvaged: true},
		domain.ProcessTreeReaped{Epoch: 1, Survivors: 1, Confirmed: true, Method: "cgroup"},
		domain.LateOutcomeReported{Epoch: 1, Claim: sampleClaim()},
		domain.Completed{Epoch: 1, Claim: sampleClaim(), UploadUntil: sec(740), Environment: why},
		domain.SealForced{ReasonText: why},
		domain.Sealed{BundleID: "0b000000-0000-5000-8000-00000000000b", State: "complete", URI: "s3://bucket/manifest", ManifestSHA256: digestB, Objects: 5, Bytes: 2048, Gaps: 1, Logs: []domain.SealedLog{{Stream: "stdout", Bytes: 1048600, SHA256: digestA, Complete: true, Chunks: 2}}},
		domain.Succeeded{Ended: ended(domain.CategorySuccess, "task_failed")},
		domain.Failed{Ended: ended(domain.CategoryUnknown, domain.CodeTaskFailed)},
		domain.Cancelled{Ended: ended(domain.CategoryUnknown, domain.CodeCancelled)},
		domain.TimedOut{Ended: ended(domain.CategoryUnknown, domain.CodeRunTimeout)},
		domain.SecretTokenIssued{Epoch: 1, Accessor: "hmac-accessor-1", Role: "execution-attempt", Policies: []string{"read-db"}, ExpiresAt: soon, Purpose: "read"},
		domain.SecretResolved{Epoch: 1, Index: 1, Name: "db", Reference: "vault://kv/db#password?version=3", Version: 3, Engine: "kv2", Mapping: "secret_mappings/databases", Accessor: "hmac-accessor-1", LeaseID: "database/creds/app/abc", Unmasked: true, Weak: []string{"port: shorter than 6 bytes"}},
		domain.SecretRevoked{Epoch: 1, Accessors: []string{"hmac-accessor-1"}},
		domain.ScanPassed{Scan: sampleScan()},
		domain.ScanFailed{Reason: "secret_found", Hits: 2, Found: []string{"stdout", "texts"}, Scan: sampleScan()},

		domain.ScrubFailed{AttemptID: attemptA, Key: "operations/op/artifacts/report/a1", Problem: "wrong_digest", SHA256: digestA, Bytes: ptr(int64(2048)), FoundSHA256: digestB, FoundBytes: ptr(int64(2048))},
		domain.ScrubHealed{AttemptID: attemptA, Key: "operations/op/artifacts/report/a1", Problem: "wrong_digest"},

		runner,
		domain.RunnerPaused{ReasonText: why}, domain.RunnerResumed{ReasonText: why}, domain.RunnerDraining{ReasonText: why},
		domain.RunnerDrained{}, domain.RunnerLost{LastSeen: sec(5)}, domain.RunnerEvicted{ReasonText: why},
		domain.RunnerWriteRefused{AttemptID: attemptA, Epoch: 1, Command: "log", Reason: "stale_epoch"},
		domain.RunnerSecretRevoked{AttemptID: attemptA, Accessors: []string{"hmac-accessor-1"}},

		domain.AccessGranted{Access: sampleAccess()},
		domain.AccessDenied{Access: sampleAccess()},

		domain.TokenCreated{TokenID: tokenA, Name: "lab runner", Role: domain.RoleRunner, Pool: "lab", RunnerID: ptr(runnerA), SHA256: digestA, ExpiresAt: &soon},
		domain.TokenRevoked{ReasonText: why},
		domain.EnrolmentCreated{EnrolmentID: enrolment, Pool: "lab", SHA256: digestA, ExpiresAt: soon},
		domain.EnrolmentUsed{RunnerID: runnerA, TokenID: tokenA},
		domain.EnrolmentRevoked{ReasonText: why},
		domain.ServiceResumed{Reason: "no_sweep", GapSeconds: 42},
		domain.PolicyActivated{BundleDigest: digestB}, domain.PolicyReplaced{BundleDigest: digestB, Before: digestA, ReasonText: why},
		domain.ProjectionRebuilt{Projection: "attempts", Rows: 1000},

		domain.CallbackScheduled{Endpoint: "control-plane", AttemptID: attemptA, CallbackID: domain.CallbackIDOf("control-plane", attemptA), ResultSHA256: digestA, ResultBytes: 2048, GiveUpAt: soon},
		domain.CallbackDelivered{CallbackAnswer: answer},
		domain.CallbackFailed{CallbackAnswer: answer, ErrorClass: "status", NextAt: &soon},
		domain.CallbackExhausted{Round: 1, Tries: 90, Reason: domain.ExhaustedWindow},
		domain.CallbackReplayed{Round: 2, ReasonText: why, GiveUpAt: soon},
		domain.EndpointStopped{Endpoint: "control-plane", Cause: domain.EndpointGone, AttemptID: ptr(attemptA), ReasonText: why},
		domain.EndpointResumed{Endpoint: "control-plane", ReasonText: why},

		domain.PackagePushed{Name: "web-base", Version: "1.4.0", Bytes: 20480, SHA256: digestA},

		domain.ForwarderParked{Topic: "execution.attempts", Key: attemptA.String(), EventID: refused, Stream: "attempt/" + attemptA.String(), Version: 7, Type: "execution.attempt.completed", Reason: "too_large", Detail: "the broker takes at most 1024 bytes"},
		domain.ForwarderRetryRequested{Topic: "execution.attempts", Key: attemptA.String(), ReasonText: why},
		domain.ForwarderEventSkipped{Topic: "execution.attempts", Key: attemptA.String(), EventID: refused, ReasonText: why},
		domain.ForwarderUnparked{Topic: "execution.attempts", Key: attemptA.String(), Published: 12},
		domain.ForwarderReplayed{From: "1.0", Until: "1.4711", Types: []string{"execution.attempt.succeeded"}, Topics: []string{"execution.attempts"}, ReasonText: why},
	}
}
