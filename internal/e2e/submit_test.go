package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// post sends a JobSpec and returns status and body as they came.
func post(ctx context.Context, url, token string, body []byte) (status int, answer []byte, header http.Header, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/attempts", bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, resp.Header, err
}

func encode(t *testing.T, s *domain.JobSpec) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// 1,000 submits of one attempt_id at once, at two replicas, make one attempt, and
// every answer is the same to the byte.
func TestAThousandSubmitsOfOneAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	urls := []string{w.startService().plane.URL(), w.startService().plane.URL()}
	c := w.replicas[0].control
	spec := tcp(closedPort(t))
	body := encode(t, spec)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)

	const submits, atOnce = 1000, 50
	type answer struct {
		status int
		body   string
	}
	answers := make([]answer, submits)
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				status, b, _, err := post(w.ctx, urls[i%2], w.controlToken, body)
				if err != nil {
					b = []byte(err.Error())
				}
				answers[i] = answer{status, string(b)}
			}
		})
	}
	for i := range submits {
		next <- i
	}
	close(next)
	wg.Wait()
	created := 0
	for i, a := range answers {
		if a.body != answers[0].body || a.status != http.StatusOK && a.status != http.StatusCreated {
			t.Fatalf("answer %d: %+v\nanswer 0: %+v", i, a, answers[0])
		}
		if a.status == http.StatusCreated {
			created++
		}
	}
	if created != 1 {
		t.Errorf("%d answers say that they made the attempt", created)
	}
	page, err := c.Attempts(w.ctx, client.AttemptQuery{})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d attempts, %v", len(page.Items), err)
	}
	if got := w.events(spec.AttemptID); len(got) != 2 {
		t.Errorf("events %v", got)
	}
	cancel(t, w, c, spec.AttemptID)
}

func cancel(t *testing.T, w *world, c *client.Client, id domain.AttemptID) {
	t.Helper()
	if _, err := c.Cancel(w.ctx, newKey(), id, "the test is over"); err != nil {
		t.Fatal(err)
	}
}

func TestSubmitRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	first := tcp(closedPort(t))
	id := w.submit(s.control, first)

	// Other bytes of the same meaning are the same JobSpec.
	var indented bytes.Buffer
	if err := json.Indent(&indented, encode(t, first), "", "  "); err != nil {
		t.Fatal(err)
	}
	again, created, err := s.control.Submit(w.ctx, indented.Bytes())
	if err != nil || created {
		t.Errorf("the same in another spelling: %+v, %t, %v", again, created, err)
	}
	other := *first
	other.PlanNodeID = "other"
	_, _, err = s.control.SubmitSpec(w.ctx, &other)
	var p *client.ProblemError
	otherDigest, derr := commands.SpecDigest(encode(t, &other))
	if derr != nil {
		t.Fatal(derr)
	}
	if !errors.As(err, &p) || p.Problem.Status != http.StatusConflict || p.Problem.Code != "attempt_exists" ||
		p.Problem.Details["stored_sha256"] != again.SpecSHA256 || p.Problem.Details["sent_sha256"] != otherDigest {
		t.Errorf("the same id with another digest: %v", err)
	}

	retry := func(of domain.AttemptID, change ...func(*domain.JobSpec)) error {
		r := *first
		r.AttemptID, r.RetryOf = domain.NewID[domain.AttemptID](uuid.New()), &of
		for _, c := range change {
			c(&r)
		}
		_, _, err := s.control.SubmitSpec(w.ctx, &r)
		if err == nil {
			cancel(t, w, s.control, r.AttemptID)
		}
		return err
	}
	if err := retry(id); err != nil {
		t.Errorf("a retry of the same node run: %v", err)
	}
	for name, err := range map[string]error{
		"unknown attempt": retry(domain.NewID[domain.AttemptID](uuid.New())),
		"another node":    retry(id, func(s *domain.JobSpec) { s.PlanNodeID = "other" }),
		"another operation": retry(id, func(s *domain.JobSpec) {
			s.OperationID = domain.NewID[domain.OperationID](uuid.New())
		}),
	} {
		if !errors.As(err, &p) || p.Problem.Status != http.StatusUnprocessableEntity || len(p.Problem.Violations) != 1 || p.Problem.Violations[0].Pointer != "/retry_of" {
			t.Errorf("retry of %s: %v", name, err)
		}
	}
	cancel(t, w, s.control, id)
}

// What is refused, and what is only asked, leaves nothing in the database.
func TestWhatIsNotAcceptedWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	s := w.startService()
	w.eventually("the service has announced its policy", func() bool {
		var n int
		err := w.desk.Pool.QueryRow(w.ctx, "SELECT count(*) FROM events WHERE type = $1", domain.PolicyActivated{}.EventType()).Scan(&n)
		return err == nil && n == 1
	})
	before := w.rows()
	good := tcp(closedPort(t))
	d, err := s.control.DryRun(w.ctx, encode(t, good))
	if err != nil || !d.Valid || d.Policy == nil || d.Policy.Verdict != "allow" || len(d.Runners) != 0 {
		t.Errorf("dry run: %+v, %v", d, err)
	}
	bad := *good
	bad.Action, bad.Controls.TimeoutSeconds = "verify.nothing", -1
	if d, err = s.control.DryRun(w.ctx, encode(t, &bad)); err != nil || d.Valid || len(d.Violations) < 2 || d.Policy != nil {
		t.Errorf("dry run of what breaks rules: %+v, %v", d, err)
	}
	if _, _, err := s.control.SubmitSpec(w.ctx, &bad); !client.IsInvalid(err) {
		t.Errorf("submit of what breaks rules: %v", err)
	}
	input := *good
	input.Inputs.Artifacts = []domain.ArtifactInput{{Name: "book", ArtifactRef: "artifact://" + uuid.NewString()}}
	if _, _, err := s.control.SubmitSpec(w.ctx, &input); client.CodeOf(err) == "" || !client.IsInvalid(err) {
		t.Errorf("submit with an artifact reference: %v", err)
	}
	body := encode(t, good)
	for name, bad := range map[string]string{
		"no JSON":         "{",
		"unknown field":   strings.Replace(string(body), `"controls"`, `"colour":"red","controls"`, 1),
		"duplicate field": strings.Replace(string(body), `"controls"`, `"job_type":"verification","controls"`, 1),
		"long":            string(body) + strings.Repeat(" ", 256<<10),
	} {
		status, answer, _, err := post(w.ctx, s.plane.URL(), w.controlToken, []byte(bad))
		if err != nil || status != http.StatusBadRequest {
			t.Errorf("%s: %d %s, %v", name, status, answer, err)
		}
	}
	if after := w.rows(); after != before {
		t.Errorf("%s\n%s", before, after)
	}
	cancel(t, w, s.control, w.submit(s.control, good))
}

// rows counts what is in the tables of the ledger.
func (w *world) rows() string {
	w.t.Helper()
	var s string
	err := w.desk.Pool.QueryRow(w.ctx, `SELECT format('%s events, %s heads, %s texts, %s attempts, %s log chunks',
		(SELECT count(*) FROM events), (SELECT count(*) FROM stream_heads), (SELECT count(*) FROM event_texts),
		(SELECT count(*) FROM attempts), (SELECT count(*) FROM log_index))`).Scan(&s)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}
