package client

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// Lease proves that the caller holds a lease.
type Lease struct {
	ID    domain.LeaseID
	Epoch int64
	Token string // the lease token itself, not its hash
}

// How much of a text the service keeps, in bytes.
const (
	maxPhase   = 100
	maxMessage = 500
	maxDetail  = 2000
	maxReason  = 500
)

const cutNote = "… (cut)"

// clip shortens s to at most n bytes, at a character's border, and says so.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end := n - len(cutNote)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cutNote
}

func (l Lease) call(key domain.CommandID, rest string) *call {
	k := &call{method: http.MethodPost, path: "/v1/leases/" + url.PathEscape(l.ID.String()) + rest}
	k.key(key)
	k.set(wire.HeaderLeaseToken, l.Token)
	k.set(wire.HeaderLeaseEpoch, strconv.FormatInt(l.Epoch, 10))
	return k
}

func leasePost[R any](ctx context.Context, c *Client, key domain.CommandID, l Lease, rest string, body any) (R, error) {
	k := l.call(key, rest)
	if err := k.encode(body); err != nil {
		var zero R
		return zero, err
	}
	return do[R](ctx, c, k)
}

// Start says that the job begins: side effects are possible from here on.
func (c *Client) Start(ctx context.Context, key domain.CommandID, l Lease, r wire.StartRequest) (wire.Started, error) {
	return leasePost[wire.Started](ctx, c, key, l, "/start", r)
}

// SendLog sends encoded frames of package bundle whose first content byte is at
// offset. Offset(err) gives where to go on from after a 416.
func (c *Client) SendLog(ctx context.Context, key domain.CommandID, l Lease, stream string, offset int64, frames []byte) (wire.LogAnswer, error) {
	k := l.call(key, "/log")
	k.query = url.Values{"stream": {stream}, "offset": {strconv.FormatInt(offset, 10)}}
	k.contentType = "application/octet-stream"
	k.body = frames
	if k.body == nil {
		k.body = []byte{}
	}
	return do[wire.LogAnswer](ctx, c, k)
}

// FingerprintKey asks for the key to fingerprint the attempt's secrets with. Any
// replica may answer; the key is the same only if all of them share its secret.
func (c *Client) FingerprintKey(ctx context.Context, l Lease) (wire.FingerprintKey, error) {
	k := l.call(domain.CommandID{}, "/fingerprints")
	k.method = http.MethodGet
	return do[wire.FingerprintKey](ctx, c, k)
}

// SendFingerprints adds prints to those of the attempt that the service has. All of
// them that are known should go in each call: what was sent before may be lost.
// certain is the shortest leak that they cannot miss, in bytes.
func (c *Client) SendFingerprints(ctx context.Context, key domain.CommandID, l Lease, certain int, prints []uint64) (wire.FingerprintsAnswer, error) {
	k := l.call(key, "/fingerprints")
	k.query = url.Values{"certain": {strconv.Itoa(certain)}}
	k.contentType = "application/octet-stream"
	k.body = make([]byte, 0, 8*len(prints))
	for _, p := range prints {
		k.body = binary.BigEndian.AppendUint64(k.body, p)
	}
	return do[wire.FingerprintsAnswer](ctx, c, k)
}

// Announce announces an artifact, or registers it once its bytes are stored.
func (c *Client) Announce(ctx context.Context, key domain.CommandID, l Lease, r wire.ArtifactRequest) (wire.ArtifactAnswer, error) {
	return leasePost[wire.ArtifactAnswer](ctx, c, key, l, "/artifacts", r)
}

// RecordEvidence records one observation. A detail that is too long is cut here.
func (c *Client) RecordEvidence(ctx context.Context, key domain.CommandID, l Lease, r wire.EvidenceRequest) (wire.EvidenceAnswer, error) {
	r.Detail = clip(r.Detail, maxDetail)
	return leasePost[wire.EvidenceAnswer](ctx, c, key, l, "/evidence", r)
}

// RecordFact records a fact that only the runner can know.
func (c *Client) RecordFact(ctx context.Context, key domain.CommandID, l Lease, r wire.FactRequest) (wire.Ack, error) {
	return leasePost[wire.Ack](ctx, c, key, l, "/facts", r)
}

// Complete says how the work ended.
func (c *Client) Complete(ctx context.Context, key domain.CommandID, l Lease, r wire.CompleteRequest) (wire.Ack, error) {
	if r.Logs == nil {
		r.Logs = []domain.ClaimedLog{}
	}
	return leasePost[wire.Ack](ctx, c, key, l, "/complete", r)
}

// Release gives a lease back before start.
func (c *Client) Release(ctx context.Context, key domain.CommandID, l Lease, reason string) (wire.Ack, error) {
	return leasePost[wire.Ack](ctx, c, key, l, "/release", wire.ReleaseRequest{Reason: clip(reason, maxReason)})
}
