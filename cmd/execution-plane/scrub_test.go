package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/internal/pgtest"
	"github.com/platform-core/execution-plane-service/internal/s3embed"
)

// A pass by hand: nothing wrong, something missing, a store that is not there.
func TestScrubByHand(t *testing.T) {
	srv, err := s3embed.Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	bucket, err := objects.Open(objects.Config{Endpoint: srv.Endpoint, Bucket: "execution-plane", AccessKey: srv.AccessKey, SecretKey: srv.SecretKey, PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bucket.Close)
	if err := bucket.EnsureBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	url := pgtest.URL(t)
	args := func(more ...string) []string {
		return append([]string{"scrub", "--database-url", url, "--s3-endpoint", srv.Endpoint, "--s3-access-key", srv.AccessKey, "--s3-secret-key", srv.SecretKey, "--no-s3-tls"}, more...)
	}
	if code, out, errOut := cliRun(t, "", args()...); code != exitOK || !strings.Contains(out, "✓ 0 attempts") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const id = "0a000000-0000-4000-8000-00000000000a"
	for _, sql := range []string{
		`INSERT INTO attempts (attempt_id, stream, operation_id, plan_node_id, job_type, action, environment, resource_ids, runner, spec_sha256, spec_text, clocks, priority, created_at)
			VALUES ('` + id + `', 's', gen_random_uuid(), 'n', 't', 'a', 'e', '{}', '{}', '', '', '{}', 0, now())`,
		`INSERT INTO attempt_status (attempt_id, stream, phase, status, epoch, sealable) VALUES ('` + id + `', 's', 'running', 'running', 1, false)`,
		`INSERT INTO log_index VALUES ('` + id + `', 'stdout', 0, 's', 4, 'operations/lost', 16, repeat('a1', 32))`,
	} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, _ := cliRun(t, "", args("--attempt", id)...); code != exitVerification || !strings.Contains(out, "operations/lost: missing") || !strings.Contains(out, "Next:") {
		t.Errorf("exit code %d: %s", code, out)
	}
	code, out, _ := cliRun(t, "", args("-o", "json")...)
	var r artifacts.ScrubReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitVerification || len(r.Findings) != 1 || r.Findings[0].Problem != "missing" {
		t.Errorf("exit code %d, %v: %s", code, err, out)
	}
	if code, _, errOut := cliRun(t, "", args("--attempt", "latest")...); code != exitUsage {
		t.Errorf("an id that is none: exit code %d: %s", code, errOut)
	}
	if err := srv.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := cliRun(t, "", args()...); code != exitUnreachable || strings.Contains(out, "✓") {
		t.Errorf("without object storage: exit code %d: %s%s", code, out, errOut)
	}
}
