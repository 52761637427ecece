package api_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

const jobSpec = `{"operation_id":"b0000000-0000-4000-8000-000000000001","plan_node_id":"probe","attempt_id":"a0000000-0000-4000-8000-000000000001",
"job_type":"verification","action":"verify.tcp.connect","target":{"resources":[{"resource_id":"db/1","resource_type":"postgres","binding":{"address":"127.0.0.1","port":5432}}],"environment":"dev"},
"inputs":{"parameters":{"resource_id":"db/1"}},"output_contract":{},"controls":{"timeout_seconds":30}}`

var hash64 = strings.Repeat("ab", 32)

// bodies are valid requests, by path.
var bodies = map[string]string{
	"/v1/attempts":                         jobSpec,
	"/v1/attempts/{id}/cancel":             `{"reason":"no longer needed"}`,
	"/v1/attempts/{id}/abort":              `{"reason":"stuck"}`,
	"/v1/attempts/{id}/requeue":            `{"reason":"wrong runner"}`,
	"/v1/attempts/{id}/seal-incomplete":    `{"reason":"the bucket is gone"}`,
	"/v1/runners":                          `{"runner_id":"c0000000-0000-4000-8000-000000000001","name":"verification-runner","version":"1.0.0","binary_sha256":"` + hash64 + `","job_types":["verification"],"actions":["verify.tcp.connect"],"isolation":["process"],"slots":2,"token_sha256":"` + hash64 + `"}`,
	"/v1/runners/{id}/commands":            `{"free_slots":1,"token_sha256":["` + hash64 + `"],"known":["drain"]}`,
	"/v1/runners/{id}/report":              `{"leases":[{"lease_id":"d0000000-0000-4000-8000-000000000001","epoch":1,"token":"` + leaseToken + `","progress":{"phase":"probe","done":1,"total":2}}]}`,
	"/v1/runners/{id}/revoked":             `{"attempt_id":"a0000000-0000-4000-8000-000000000001","accessors":["hmac-1"]}`,
	"/v1/runners/{id}/pause":               `{"reason":"maintenance"}`,
	"/v1/runners/{id}/resume":              `{"reason":"maintenance is over"}`,
	"/v1/runners/{id}/drain":               `{"reason":"leaving"}`,
	"/v1/runners/{id}/evict":               `{"reason":"gone"}`,
	"/v1/leases/{id}/start":                `{"isolation":"process"}`,
	"/v1/leases/{id}/log":                  "frames",
	"/v1/leases/{id}/artifacts":            `{"name":"report","type":"diagnostics_bundle","sensitivity":"internal","bytes":3,"sha256":"` + hash64 + `"}`,
	"/v1/leases/{id}/evidence":             `{"name":"up","type":"api_check","result":"passed","source":"stdout","observed_at":"2026-03-01T12:00:00Z"}`,
	"/v1/leases/{id}/facts":                `{"process_tree_reaped":{"survivors":0,"confirmed":true,"method":"subreaper"}}`,
	"/v1/leases/{id}/fingerprints":         "\x00\x01\x02\x03\x04\x05\x06\x07",
	"/v1/leases/{id}/complete":             `{"result":"succeeded","launched":true,"code":0,"finished_at":"2026-03-01T12:00:00Z","logs":[],"artifacts":0}`,
	"/v1/leases/{id}/release":              `{"reason":"declined"}`,
	"/v1/operations/{id}/artifacts/{name}": "site: lab\n",
	"/v1/packages/{digest}":                "a packed file",
	"/v1/callbacks/{id}/replay":            `{"reason":"they lost it"}`,
	"/v1/callbacks/replay":                 `{"endpoint":"ops","after":"1.1","until":"1.9","states":["exhausted"],"reason":"they lost all"}`,
	"/v1/callback-endpoints/{name}/stop":   `{"reason":"maintenance"}`,
	"/v1/callback-endpoints/{name}/resume": `{"reason":"maintenance is over"}`,
	"/v1/forwarder/retry":                  `{"topic":"execution.attempts","key":"k","reason":"the limit is higher now"}`,
	"/v1/forwarder/skip":                   `{"topic":"execution.attempts","key":"k","event_id":"e1000000-0000-4000-8000-000000000001","reason":"nobody needs it"}`,
	"/v1/policy/bundles/{digest}":          string(policy.Builtin().Bytes()),
	"/v1/policy/active":                    `{"bundle_digest":"` + policy.Builtin().Digest() + `","reason":"new targets"}`,
	"/v1/tokens":                           `{"name":"the new one","role":"viewer"}`,
	"/v1/tokens/{id}/revoke":               `{"reason":"lost"}`,
	"/v1/enrolments":                       `{"pool":"default"}`,
}

// sample is a valid request of a route.
type sample struct {
	method, path, body string
	header             []string
}

func sampleOf(t *testing.T, r api.Route) sample {
	t.Helper()
	id := attemptID.String()
	switch {
	case strings.HasPrefix(r.Path, "/v1/runners/"):
		id = runnerID.String()
	case strings.HasPrefix(r.Path, "/v1/leases/"):
		id = leaseID.String()
	case strings.HasPrefix(r.Path, "/v1/operations/"):
		id = operationID.String()
	case strings.HasPrefix(r.Path, "/v1/callbacks/"):
		id = callbackID.String()
	}
	s := sample{method: r.Method, path: strings.NewReplacer("{id}", id, "{action}", "verify.tcp.connect", "{artifact}", secretArtifact.String(), "{digest}", policy.Builtin().Digest(),
		"{name}", "ops", "{type}", "execution.attempt.created", "{schema}", "1").Replace(r.Path)}
	if r.HasBody() {
		body, ok := bodies[r.Path]
		if !ok {
			t.Fatalf("%s %s takes a body; add a valid one to bodies", r.Method, r.Path)
		}
		s.body = body
	}
	if strings.HasSuffix(r.Path, "/log") && r.Method == "POST" {
		s.path += "?stream=stdout&offset=0"
	}
	if strings.HasSuffix(r.Path, "/fingerprints") && r.Method == "POST" {
		s.path += "?certain=8"
	}
	if r.Key == api.KeyRequired {
		s.header = append(s.header, wire.HeaderIdempotencyKey, uuid.NewString())
	}
	if r.Lease {
		s.header = append(s.header, wire.HeaderLeaseToken, leaseToken, wire.HeaderLeaseEpoch, "1")
	}
	return s
}

// roleFor is a role that may use the route.
func roleFor(r api.Route) string {
	if len(r.Roles) == 0 {
		return domain.RoleViewer
	}
	return r.Roles[0]
}
