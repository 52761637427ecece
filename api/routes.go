package api

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// KeyRule says what a route does with the header Idempotency-Key.
type KeyRule string

// The rules. A request without a key where one is optional gets one that nobody
// can repeat.
const (
	KeyNone     KeyRule = "none"     // reads
	KeyOptional KeyRule = "optional" // the service makes one
	KeyRequired KeyRule = "required" // 400 without
	KeyInBody   KeyRule = "in_body"  // the command's id is the JobSpec's attempt_id
)

// Route is one row of the route table.
type Route struct {
	Method  string
	Path    string // as gorilla/mux writes it
	Summary string // one line
	// Roles may use the route. Empty: everybody, without a token.
	Roles []string
	// Enrolment says that an enrolment token is good too.
	Enrolment bool
	// Own says that a runner may name only itself in the path's id.
	Own bool
	// Lease says that the headers Lease-Token and Lease-Epoch are required.
	Lease bool
	Key   KeyRule
	Query []string // the parameters that are known
	// Request and Response are zero values of the types in JSON; nil for none or
	// for bytes, whose media type is then in RequestMedia and ResponseMedia.
	Request, Response           any
	RequestMedia, ResponseMedia string
	// Success are the statuses of success; Errors the kinds of refusal beside
	// those that follow from the rest of the row (see Refusals).
	Success []int
	Errors  []domain.Kind
	// OddText says that texts of the body are made storable rather than refused:
	// they repeat what a tool printed.
	OddText bool
	MaxBody int // bytes; 0 for MaxBody
	// Streamed says that the body is a file of MaxBody bytes at most, which is read
	// while it comes and never held whole. Its header Content-SHA256 is optional.
	Streamed bool
	// Held says that the request may be held up to MaxWait seconds.
	Held bool
	// Quiet routes are for probes and are not logged above debug.
	Quiet bool

	handle func(*server, *request) error
}

// The sets of roles that the table speaks of.
var (
	readers   = []string{domain.RoleControlPlane, domain.RoleAuditor, domain.RoleViewer, domain.RoleOperator}
	feeders   = []string{domain.RoleControlPlane, domain.RoleAuditor, domain.RoleOperator}
	submitter = []string{domain.RoleControlPlane, domain.RoleOperator}
	operators = []string{domain.RoleOperator}
	overseers = []string{domain.RoleAuditor, domain.RoleOperator}
	drainers  = []string{domain.RoleOperator, domain.RoleRunner}
	runner    = []string{domain.RoleRunner}
	everyone  = []string{domain.RoleControlPlane, domain.RoleRunner, domain.RoleAuditor, domain.RoleViewer, domain.RoleOperator}
)

var attemptFilters = []string{"operation_id", "plan_node_id", "status", "failure_code", "runner_id", "job_type", "action", "environment",
	"resource_id", "requested_by", "id_prefix", "since", "until", "after", "limit"}

const (
	mediaJSON   = "application/json"
	mediaBytes  = "application/octet-stream"
	mediaNDJSON = "application/x-ndjson"
	mediaSSE    = "text/event-stream"
)

// kindsOf is short for a row's refusals.
func kindsOf(k ...domain.Kind) []domain.Kind { return k }

// fence are the refusals of a lease's write by its attempt.
var fence = kindsOf(domain.KindNotFound, domain.KindGone, domain.KindConflict)

var ok200 = []int{http.StatusOK}

// routes is the one table. Order is that of docs/api.md.
var routes = []Route{
	{Method: "POST", Path: "/v1/attempts", Summary: "Submit a JobSpec, or try it with dry_run.", Roles: submitter, Key: KeyInBody, Query: []string{"dry_run"},
		Request: domain.JobSpec{}, Response: wire.Receipt{}, Success: []int{200, 201}, Errors: kindsOf(domain.KindInvalid, domain.KindConflict, domain.KindOverloaded), handle: (*server).submit},
	{Method: "GET", Path: "/v1/attempts", Summary: "List attempts, the newest first.", Roles: readers, Query: attemptFilters,
		Response: wire.Page[wire.Attempt]{}, Success: ok200, handle: (*server).listAttempts},
	{Method: "GET", Path: "/v1/attempts/{id}", Summary: "Show one attempt.", Roles: readers,
		Response: wire.Attempt{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getAttempt},
	{Method: "GET", Path: "/v1/attempts/{id}/job-spec", Summary: "The JobSpec, with the bytes that were accepted.", Roles: readers,
		Response: domain.JobSpec{}, Success: []int{200, 304}, Errors: kindsOf(domain.KindNotFound, domain.KindGone), handle: (*server).getJobSpec},
	{Method: "GET", Path: "/v1/attempts/{id}/result", Summary: "The ExecutionResult, once there is one.", Roles: readers, Query: []string{"wait"}, Held: true,
		Response: domain.ExecutionResult{}, Success: []int{200, 202, 304}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getResult},
	{Method: "GET", Path: "/v1/attempts/{id}/events", Summary: "The attempt's events with exact bytes and hashes.", Roles: readers, Query: []string{"after", "limit"}, Held: true,
		Response: wire.Page[wire.Event]{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getAttemptEvents},
	{Method: "GET", Path: "/v1/attempts/{id}/state", Summary: "The attempt folded up to a version or a moment.", Roles: readers, Query: []string{"version", "at"},
		Response: wire.AttemptState{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getState},
	{Method: "GET", Path: "/v1/attempts/{id}/log", Summary: "Bytes of a log stream, or follow it.", Roles: readers, Query: []string{"stream", "offset", "limit", "follow"}, Held: true,
		ResponseMedia: mediaBytes, Success: ok200, Errors: kindsOf(domain.KindNotFound, domain.KindOffset), handle: (*server).getLog},
	{Method: "GET", Path: "/v1/attempts/{id}/artifacts", Summary: "What the attempt stored.", Roles: readers,
		Response: wire.Page[wire.Artifact]{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getArtifacts},
	{Method: "GET", Path: "/v1/attempts/{id}/artifacts/{artifact}/secret", Summary: "Where in Vault a secret artifact lies; recorded.", Roles: readers,
		Response: wire.SecretArtifact{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getSecretArtifact},
	{Method: "GET", Path: "/v1/attempts/{id}/evidence", Summary: "What the attempt observed.", Roles: readers,
		Response: wire.Page[wire.Evidence]{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getEvidence},
	{Method: "GET", Path: "/v1/attempts/{id}/bundle", Summary: "The sealed bundle's manifest.", Roles: readers,
		ResponseMedia: mediaJSON, Success: []int{200, 304}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getBundle},
	{Method: "GET", Path: "/v1/attempts/{id}/explain", Summary: "Why the attempt is where it is.", Roles: readers,
		Response: wire.Explanation{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getExplanation},
	{Method: "POST", Path: "/v1/attempts/{id}/cancel", Summary: "Ask the attempt to stop.", Roles: submitter, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Attempt{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).cancel},
	{Method: "POST", Path: "/v1/attempts/{id}/abort", Summary: "End the attempt as an operator.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Attempt{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).abort},
	{Method: "POST", Path: "/v1/attempts/{id}/requeue", Summary: "Take an offer back that was not started.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Attempt{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict, domain.KindGone), handle: (*server).requeue},
	{Method: "POST", Path: "/v1/attempts/{id}/seal-incomplete", Summary: "Seal a finalizing attempt with what the ledger knows.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Attempt{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).sealIncomplete},
	{Method: "PUT", Path: "/v1/operations/{id}/artifacts/{name}", Summary: "Put a file for the jobs of an operation.", Roles: submitter, Key: KeyOptional, Query: []string{"sensitivity"},
		RequestMedia: mediaBytes, MaxBody: domain.MaxInputBytes, Streamed: true, Response: wire.PutArtifact{}, Success: []int{200, 201},
		Errors: kindsOf(domain.KindInvalid, domain.KindConflict, domain.KindOverloaded), handle: (*server).putArtifact},
	{Method: "GET", Path: "/v1/operations/{id}/artifacts", Summary: "What was put to an operation, the newest first.", Roles: readers,
		Response: wire.Page[wire.OperationArtifact]{}, Success: ok200, handle: (*server).listPutArtifacts},
	{Method: "GET", Path: "/v1/artifacts/{artifact}", Summary: "Where the bytes of an artifact are.", Roles: readers,
		Success: []int{307}, Errors: kindsOf(domain.KindNotFound, domain.KindConflict), handle: (*server).getArtifact},
	{Method: "GET", Path: "/v1/results", Summary: "Results in the order of the feed.", Roles: feeders, Query: []string{"after", "limit", "wait"}, Held: true,
		Response: wire.Page[wire.ResultItem]{}, Success: ok200, handle: (*server).listResults},
	{Method: "GET", Path: "/v1/events", Summary: "All events in the order of the feed.", Roles: feeders, Query: []string{"after", "limit"}, Held: true,
		ResponseMedia: mediaNDJSON, Success: ok200, handle: (*server).listEvents},
	{Method: "GET", Path: "/v1/actions", Summary: "What a JobSpec can ask for.", Roles: everyone,
		Response: wire.Page[wire.Action]{}, Success: ok200, handle: (*server).listActions},
	{Method: "GET", Path: "/v1/actions/{action}/schema", Summary: "The JSON Schema of an action's parameters.", Roles: everyone,
		ResponseMedia: mediaSchema, Success: []int{200, 304}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getActionSchema},

	{Method: "POST", Path: "/v1/runners", Summary: "Enrol or register a runner.", Roles: runner, Enrolment: true, Key: KeyRequired,
		Request: wire.Registration{}, Response: wire.Registered{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).register},
	{Method: "GET", Path: "/v1/runners", Summary: "List the runners.", Roles: readers,
		Response: wire.Page[wire.Runner]{}, Success: ok200, handle: (*server).listRunners},
	{Method: "GET", Path: "/v1/runners/{id}", Summary: "Show one runner.", Roles: readers,
		Response: wire.Runner{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getRunner},
	{Method: "POST", Path: "/v1/runners/{id}/commands", Summary: "Wait for offers, stops and drains.", Roles: runner, Own: true, Key: KeyRequired, Query: []string{"wait"}, Held: true,
		Request: wire.CommandsRequest{}, Response: wire.Commands{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindGone), handle: (*server).commandsFor},
	{Method: "POST", Path: "/v1/runners/{id}/report", Summary: "Heartbeats and progress of all leases.", Roles: runner, Own: true, Key: KeyRequired, OddText: true,
		Request: wire.ReportRequest{}, Response: wire.ReportAnswer{}, Success: ok200, Errors: kindsOf(domain.KindInvalid), handle: (*server).report},
	{Method: "POST", Path: "/v1/runners/{id}/revoked", Summary: "Say that Vault tokens which were left are revoked.", Roles: runner, Own: true, Key: KeyRequired,
		Request: wire.RevokedRequest{}, Response: wire.Ack{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindGone, domain.KindConflict), handle: (*server).revoked},
	{Method: "POST", Path: "/v1/runners/{id}/pause", Summary: "Give the runner no new lease.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Runner{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict, domain.KindGone), handle: changeRunner("pause")},
	{Method: "POST", Path: "/v1/runners/{id}/resume", Summary: "Undo pause and drain.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Runner{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict, domain.KindGone), handle: changeRunner("resume")},
	{Method: "POST", Path: "/v1/runners/{id}/drain", Summary: "Let the runner finish and leave; a runner says it of itself.", Roles: drainers, Own: true, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Runner{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict, domain.KindGone), handle: changeRunner("drain")},
	{Method: "POST", Path: "/v1/runners/{id}/evict", Summary: "Give the runner up; its leases end at once.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Runner{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict, domain.KindGone), handle: changeRunner("evict")},

	{Method: "POST", Path: "/v1/leases/{id}/start", Summary: "Begin the attempt.", Roles: runner, Lease: true, Key: KeyRequired,
		Request: wire.StartRequest{}, Response: wire.Started{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).start},
	{Method: "POST", Path: "/v1/leases/{id}/log", Summary: "Store a chunk of log.", Roles: runner, Lease: true, Key: KeyRequired, Query: []string{"stream", "offset"},
		RequestMedia: mediaBytes, MaxBody: bundle.MaxChunkEncoded, Response: wire.LogAnswer{}, Success: ok200,
		Errors: append(kindsOf(domain.KindInvalid, domain.KindOffset), fence...), handle: (*server).storeLog},
	{Method: "POST", Path: "/v1/leases/{id}/artifacts", Summary: "Announce or register an artifact.", Roles: runner, Lease: true, Key: KeyRequired, OddText: true,
		Request: wire.ArtifactRequest{}, Response: wire.ArtifactAnswer{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).announce},
	{Method: "POST", Path: "/v1/leases/{id}/evidence", Summary: "Record an observation.", Roles: runner, Lease: true, Key: KeyRequired, OddText: true,
		Request: wire.EvidenceRequest{}, Response: wire.EvidenceAnswer{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).recordEvidence},
	{Method: "POST", Path: "/v1/leases/{id}/facts", Summary: "Record what only the runner can know.", Roles: runner, Lease: true, Key: KeyRequired, OddText: true,
		Request: wire.FactRequest{}, Response: wire.Ack{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).recordFact},
	{Method: "GET", Path: "/v1/leases/{id}/fingerprints", Summary: "The key to fingerprint the attempt's secrets with.", Roles: runner, Lease: true,
		Response: wire.FingerprintKey{}, Success: ok200, Errors: fence, handle: (*server).fingerprintKey},
	{Method: "POST", Path: "/v1/leases/{id}/fingerprints", Summary: "Keep fingerprints that the bundle is scanned for.", Roles: runner, Lease: true, Key: KeyRequired, Query: []string{"certain"},
		RequestMedia: mediaBytes, MaxBody: printBytes * projections.MaxFingerprints, Response: wire.FingerprintsAnswer{}, Success: ok200,
		Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).addFingerprints},
	{Method: "GET", Path: "/v1/leases/{id}/inputs/{name}", Summary: "Where an input artifact or a package of the attempt is.", Roles: runner, Lease: true,
		Success: []int{307}, Errors: fence, handle: (*server).getInput},
	{Method: "POST", Path: "/v1/leases/{id}/complete", Summary: "Say how the work ended.", Roles: runner, Lease: true, Key: KeyRequired, OddText: true,
		Request: wire.CompleteRequest{}, Response: wire.Ack{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).complete},
	{Method: "POST", Path: "/v1/leases/{id}/release", Summary: "Give the lease back before start.", Roles: runner, Lease: true, Key: KeyRequired, OddText: true,
		Request: wire.ReleaseRequest{}, Response: wire.Ack{}, Success: ok200, Errors: append(kindsOf(domain.KindInvalid), fence...), handle: (*server).release},
	{Method: "GET", Path: "/v1/policy/bundles/{digest}", Summary: "A policy bundle as an archive.", Roles: append(slices.Clone(runner), overseers...),
		ResponseMedia: mediaTar, Success: []int{200, 304}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getPolicyBundle},
	{Method: "PUT", Path: "/v1/policy/bundles/{digest}", Summary: "Keep a policy bundle.", Roles: operators, Key: KeyOptional,
		RequestMedia: mediaTar, MaxBody: artifacts.MaxPolicyArchive, Response: wire.PolicyBundle{}, Success: ok200, Errors: kindsOf(domain.KindInvalid), handle: (*server).putPolicyBundle},
	{Method: "GET", Path: "/v1/audit", Summary: "What operators did and what jobs were let do beyond others, the newest first.", Roles: overseers, Query: []string{"privileged", "since", "until", "after", "limit"},
		Response: wire.Page[wire.AuditFact]{}, Success: ok200, handle: (*server).listAudit},
	{Method: "GET", Path: "/v1/policy/active", Summary: "Which policy bundle is the active one.", Roles: readers,
		Response: wire.ActivePolicy{}, Success: ok200, handle: (*server).showPolicy},
	{Method: "POST", Path: "/v1/policy/active", Summary: "Make a policy bundle the active one.", Roles: operators, Key: KeyOptional,
		Request: wire.ActivatePolicyRequest{}, Response: wire.ActivePolicy{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).activatePolicy},

	{Method: "PUT", Path: "/v1/packages/{digest}", Summary: "Push a package of playbooks.", Roles: operators, Key: KeyOptional,
		RequestMedia: mediaBytes, MaxBody: artifacts.MaxPackage, Streamed: true, Response: wire.Package{}, Success: []int{200, 201},
		Errors: kindsOf(domain.KindInvalid, domain.KindConflict, domain.KindOverloaded), handle: (*server).pushPackage},
	{Method: "GET", Path: "/v1/packages", Summary: "List the packages that were pushed, by name.", Roles: readers,
		Response: wire.Page[wire.StoredPackage]{}, Success: ok200, handle: (*server).listPackages},
	{Method: "GET", Path: "/v1/packages/{digest}", Summary: "Where the file of a package is.", Roles: feeders,
		Success: []int{307}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getPackage},

	{Method: "GET", Path: "/v1/callbacks", Summary: "List callbacks, the last scheduled first.", Roles: readers, Query: []string{"endpoint", "state", "attempt_id", "after", "limit"},
		Response: wire.Page[wire.Callback]{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).listCallbacks},
	{Method: "POST", Path: "/v1/callbacks/replay", Summary: "Deliver the results of a range once more.", Roles: operators, Key: KeyOptional,
		Request: wire.ReplayRequest{}, Response: wire.ReplayAnswer{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).replayRange},
	{Method: "GET", Path: "/v1/callbacks/{id}", Summary: "Show one callback with its tries.", Roles: readers,
		Response: wire.CallbackHistory{}, Success: ok200, Errors: kindsOf(domain.KindNotFound), handle: (*server).getCallback},
	{Method: "POST", Path: "/v1/callbacks/{id}/replay", Summary: "Deliver a result once more.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Callback{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).replayCallback},
	{Method: "GET", Path: "/v1/callback-endpoints", Summary: "Where results are delivered, and how that goes.", Roles: readers,
		Response: wire.CallbackEndpoints{}, Success: ok200, handle: (*server).listEndpoints},
	{Method: "POST", Path: "/v1/callback-endpoints/{name}/stop", Summary: "Let an endpoint's callbacks wait.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.CallbackEndpoint{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: changeEndpoint("stop")},
	{Method: "POST", Path: "/v1/callback-endpoints/{name}/resume", Summary: "Deliver to an endpoint again.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.CallbackEndpoint{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: changeEndpoint("resume")},
	{Method: "GET", Path: "/v1/forwarder", Summary: "How publishing to Kafka goes, and what is parked.", Roles: readers,
		Response: wire.Forwarder{}, Success: ok200, handle: (*server).getForwarder},
	{Method: "POST", Path: "/v1/forwarder/retry", Summary: "Try a parked key again.", Roles: operators, Key: KeyOptional,
		Request: wire.RetryRequest{}, Response: wire.Ack{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).retryKey},
	{Method: "POST", Path: "/v1/forwarder/skip", Summary: "Give up publishing one event that the broker refuses.", Roles: operators, Key: KeyOptional,
		Request: wire.SkipRequest{}, Response: wire.Ack{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).skipEvent},
	{Method: "GET", Path: "/v1/event-schemas", Summary: "The JSON Schemas of the events' payloads.", Roles: everyone,
		Response: wire.Page[wire.EventSchema]{}, Success: ok200, handle: (*server).listEventSchemas},
	{Method: "GET", Path: "/v1/event-schemas/{type}/{schema}", Summary: "The JSON Schema of one event's payload.", Roles: everyone,
		ResponseMedia: mediaSchema, Success: []int{200, 304}, Errors: kindsOf(domain.KindNotFound), handle: (*server).getEventSchema},

	{Method: "GET", Path: "/v1/tokens", Summary: "List the tokens, without secrets.", Roles: overseers,
		Response: wire.Page[wire.Token]{}, Success: ok200, handle: (*server).listTokens},
	{Method: "POST", Path: "/v1/tokens", Summary: "Make a token; its secret is shown once.", Roles: operators, Key: KeyOptional,
		Request: wire.TokenRequest{}, Response: wire.TokenSecret{}, Success: []int{201}, Errors: kindsOf(domain.KindInvalid, domain.KindConflict), handle: (*server).createToken},
	{Method: "POST", Path: "/v1/tokens/{id}/revoke", Summary: "End a token.", Roles: operators, Key: KeyOptional,
		Request: wire.ReasonRequest{}, Response: wire.Ack{}, Success: ok200, Errors: kindsOf(domain.KindInvalid, domain.KindNotFound, domain.KindConflict), handle: (*server).revokeToken},
	{Method: "POST", Path: "/v1/enrolments", Summary: "Let one runner into a pool.", Roles: operators, Key: KeyOptional,
		Request: wire.EnrolmentRequest{}, Response: wire.EnrolmentSecret{}, Success: []int{201}, Errors: kindsOf(domain.KindInvalid, domain.KindConflict), handle: (*server).createEnrolment},

	{Method: "GET", Path: "/livez", Summary: "Whether the process answers.", ResponseMedia: "text/plain", Success: ok200, Quiet: true, handle: (*server).live},
	{Method: "GET", Path: "/readyz", Summary: "Whether the service can do its work.", Response: wire.Ready{}, Success: []int{200, 503}, Quiet: true, handle: (*server).ready},
	{Method: "GET", Path: "/metrics", Summary: "Metrics in Prometheus' text format.", ResponseMedia: "text/plain", Success: ok200, Quiet: true, handle: (*server).serveMetrics},
	{Method: "GET", Path: "/openapi.json", Summary: "The OpenAPI document.", Response: json.RawMessage{}, Success: []int{200, 304}, Quiet: true, handle: (*server).serveOpenAPI},
}

// Media types of single routes.
const (
	mediaSchema = "application/schema+json"
	mediaTar    = "application/x-tar"
)

// Routes returns the table, for documentation and tests.
func Routes() []Route { return slices.Clone(routes) }

// Public says that the route needs no token.
func (r *Route) Public() bool { return len(r.Roles) == 0 }

// HasBody says that the route takes a body.
func (r *Route) HasBody() bool { return r.Request != nil || r.RequestMedia != "" }

// Refusals are all kinds of error that the route answers with, in the order in
// which they are looked for.
func (r *Route) Refusals() []domain.Kind {
	var out []domain.Kind
	if !r.Public() {
		out = append(out, domain.KindUnauthenticated, domain.KindForbidden)
		// Even a route without parameters refuses unknown ones.
		out = append(out, domain.KindMalformed)
	}
	for _, k := range []domain.Kind{domain.KindNotFound, domain.KindGone, domain.KindConflict, domain.KindInvalid, domain.KindOffset} {
		if slices.Contains(r.Errors, k) {
			out = append(out, k)
		}
	}
	if slices.Contains(r.Errors, domain.KindOverloaded) || r.Held {
		out = append(out, domain.KindOverloaded)
	}
	if !r.Public() {
		out = append(out, domain.KindInternal, domain.KindUnavailable)
	}
	return out
}
