package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/client"
	"github.com/platform-core/execution-plane-service/bundle"
)

// checkLogs: every byte is the one that was foretold, once and in its place; only
// the end may be missing, and only where something was lost. It returns the logs.
func (e *evidence) checkLogs(s *story, x *life) map[string][]byte {
	w := e.w
	logs := map[string][]byte{}
	for _, stream := range []string{"stdout", "stderr", "events"} {
		got, err := e.readLog(s, stream)
		if err != nil {
			w.wrong.add("attempt %s: the sealed %s: %v", x.id, stream, err)
			continue
		}
		logs[stream] = got
		if int64(len(got)) != x.stored[stream] {
			w.wrong.add("attempt %s: %d bytes of %s are read and %d were stored", x.id, len(got), stream, x.stored[stream])
		}
		if stream == "events" {
			continue
		}
		want := foretell(s.job.Work, x.id, stream, int64(len(got)))
		if !bytes.HasPrefix(want, got) {
			at := firstDifference(want, got)
			w.wrong.add("attempt %s: %s differs at byte %d of %d:\n got %q\nwant %q%s", x.id, stream, at, len(got), around(got, at), around(want, at), e.tellLife(x))
			continue
		}
		whole := x.result.FailureCode == "" && x.result.RawOutputBundle.State == string(bundle.Complete)
		if whole && len(got) != len(want) {
			w.wrong.add("attempt %s succeeded with a complete bundle, and %s has %d of %d bytes", x.id, stream, len(got), len(want))
		}
	}
	if s.followed != nil && !bytes.Equal(s.followed.Bytes(), logs["stdout"]) {
		at := firstDifference(logs["stdout"], s.followed.Bytes())
		w.wrong.add("attempt %s: who followed stdout (%s) saw %d bytes, sealed are %d; they differ at %d", x.id, s.job.Follow, s.followed.Len(), len(logs["stdout"]), at)
	}
	return logs
}

func (e *evidence) readLog(s *story, stream string) ([]byte, error) {
	var out []byte
	for {
		var part client.LogPart
		err := e.load.insist("log", func(ctx context.Context, c *client.Client) (err error) {
			part, err = c.Log(ctx, s.job.attempt(), stream, int64(len(out)), 1+rand.IntN(256<<10))
			return err
		})
		if err != nil {
			return out, err
		}
		out = append(out, part.Data...)
		if part.Complete && len(part.Data) == 0 {
			return out, nil
		}
		if !part.Complete && len(part.Data) == 0 {
			return out, fmt.Errorf("it does not end at %d", len(out))
		}
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func around(b []byte, at int) []byte { return b[max(0, at-60):min(len(b), at+60)] }

// checkAcks: whatever a runner was told is stored is stored.
func (e *evidence) checkAcks(s *story, x *life, logs map[string][]byte) {
	w := e.w
	evidence, artifacts := 0, 0
	for _, a := range e.acks[x.id] {
		key, err := uuid.Parse(a.Key)
		if err != nil {
			w.wrong.add("an acknowledged write has the key %q", a.Key)
			continue
		}
		switch a.What {
		case "log":
			if int64(len(logs[a.Stream])) < a.Offset {
				w.wrong.add("attempt %s: %d bytes of %s were acknowledged in epoch %d and %d are there%s", x.id, a.Offset, a.Stream, a.Epoch, len(logs[a.Stream]), e.tellLife(x))
			}
			continue
		case "evidence":
			evidence++
		case "artifact":
			artifacts++
			continue // registered under an earlier key perhaps
		case "start":
			if x.started == nil || x.started.Epoch != a.Epoch {
				w.wrong.add("attempt %s: a start in epoch %d was acknowledged: %+v", x.id, a.Epoch, x.started)
			}
		case "complete":
			if x.claim == nil && x.late == nil {
				w.wrong.add("attempt %s: a completion was acknowledged and is not there", x.id)
			}
		}
		if e.ids[x.id][key] == 0 {
			w.wrong.add("attempt %s: the acknowledged %s %s has no event", x.id, a.What, a.Key)
		}
	}
	if evidence > 0 && x.evidence == 0 {
		w.wrong.add("attempt %s: evidence was acknowledged and is not there", x.id)
	}
	if artifacts > 0 && len(x.artifacts) == 0 {
		w.wrong.add("attempt %s: an artifact was acknowledged and is not there", x.id)
	}
	_ = s
}
