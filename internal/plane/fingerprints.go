package plane

import (
	"context"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/platform-core/execution-plane-service/projections"
)

// keyEvery is how often a replica says which fingerprint key it uses.
const keyEvery = 20 * time.Second

// keyWatch says to the other replicas which fingerprint key this one uses, and
// notices that another one lives with another key: bundles would then be scanned,
// and quarantined, by a replica that cannot know what to look for.
type keyWatch struct {
	p      *Plane
	others atomic.Int32 // keys of other live replicas, as last seen
}

// run works until ctx ends. It never fails: scanning says by itself that a key is
// missing.
func (w *keyWatch) run(ctx context.Context) error {
	id := w.p.Commands.Keys.ID()
	var since time.Time // what was told before this process began may be of one that has ended
	for {
		far := since
		if far.IsZero() {
			far = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		n, now, err := w.p.Reads.NoteFingerprintKey(ctx, id, far)
		switch {
		case err == nil && since.IsZero():
			since = now
		case err == nil:
			w.told(ctx, n, id)
		}
		select {
		case <-ctx.Done():
			return w.forget(context.WithoutCancel(ctx), id)
		case <-time.After(keyEvery):
		}
	}
}

func (w *keyWatch) told(ctx context.Context, others int, id projections.FingerprintKeyID) {
	if before := w.others.Swap(int32(min(others, 1000))); int(before) == others {
		return
	}
	if others > 0 {
		w.p.Log.WarnContext(ctx, "other replicas use other fingerprint keys: what one hands out another cannot scan, and bundles of jobs with secrets are quarantined as fingerprints_lost; give all replicas the same --fingerprint-key-file",
			"other_keys", others, "key_id", hex.EncodeToString(id[:]))
		return
	}
	w.p.Log.InfoContext(ctx, "all live replicas use one fingerprint key")
}

// forget lets a replica that follows with another key live without a warning.
func (w *keyWatch) forget(ctx context.Context, id projections.FingerprintKeyID) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = w.p.Reads.ForgetFingerprintKey(ctx, id) // it is forgotten by itself a minute later
	return nil
}
