package commands

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// LeastFingerprintSecret is how many bytes the secret behind the fingerprint keys
// has at least.
const LeastFingerprintSecret = 32

// FingerprintKeys makes the keys of the hashes by which bundles are scanned for
// secrets, one for each attempt. It is held in memory only. Replicas that share the
// secret can scan what any of them handed a key out for. Safe for concurrent use.
type FingerprintKeys struct{ secret []byte }

// NewFingerprintKeys returns keys that nobody else has, and that end with the
// process.
func NewFingerprintKeys() *FingerprintKeys {
	b := make([]byte, LeastFingerprintSecret)
	rand.Read(b) // never fails: crypto/rand aborts the program instead
	return &FingerprintKeys{b}
}

// SharedFingerprintKeys returns the keys that follow from a secret, such as the
// contents of a file. Line ends after it do not count.
func SharedFingerprintKeys(secret []byte) (*FingerprintKeys, error) {
	secret = bytes.TrimRight(secret, "\r\n")
	if len(secret) < LeastFingerprintSecret {
		return nil, errors.New("the secret of the fingerprint keys has fewer than 32 bytes; make one: openssl rand -hex 32")
	}
	return &FingerprintKeys{bytes.Clone(secret)}, nil
}

func (k *FingerprintKeys) sum(of []byte) []byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write(of)
	return h.Sum(nil)
}

// Of is an attempt's key: HMAC-SHA256 of its id under the secret.
func (k *FingerprintKeys) Of(id domain.AttemptID) [32]byte {
	u := id.UUID()
	return [32]byte(k.sum(u[:]))
}

// ID tells keys of one secret from those of another one.
func (k *FingerprintKeys) ID() projections.FingerprintKeyID {
	return projections.FingerprintKeyID(k.sum([]byte("id"))[:8])
}

// Prints keeps the fingerprints of attempts until their bundles are scanned.
// projections.Reader is the one there is. It may lose everything at a crash of the
// database; what it has is then told as lost.
type Prints interface {
	GiveFingerprintKey(ctx context.Context, id domain.AttemptID, key projections.FingerprintKeyID, first bool) error
	AddFingerprints(ctx context.Context, id domain.AttemptID, prints []uint64, certain int) (kept int, err error)
}

// FingerprintKey hands the holder of a lease the attempt's key. With which secret
// it was made is noted first: prints under another one are never taken for these.
// Once a secret was told of, its prints were sent: if they are not kept any more, a
// key asked for again does not make up for them.
func (s *Service) FingerprintKey(ctx context.Context, call LeaseCall) ([32]byte, error) {
	a, err := s.onLiveLease(ctx, call, "fingerprints", domain.CheckFingerprints)
	if err != nil {
		return [32]byte{}, err
	}
	if err := s.Prints.GiveFingerprintKey(ctx, a.ID, s.Keys.ID(), a.Secrets == 0); err != nil {
		return [32]byte{}, err
	}
	return s.Keys.Of(a.ID), nil
}

// AddFingerprints keeps prints of the holder's attempt, and returns how many there
// are with those that came before. certain is the shortest leak that they cannot
// miss, in bytes. It is no event, and the same again changes nothing.
func (s *Service) AddFingerprints(ctx context.Context, call LeaseCall, prints []uint64, certain int) (kept int, err error) {
	a, err := s.onLiveLease(ctx, call, "fingerprints", domain.CheckFingerprints)
	if err != nil {
		return 0, err
	}
	return s.Prints.AddFingerprints(ctx, a.ID, prints, certain)
}

// onLiveLease checks a call of a runner that appends nothing, and returns the
// attempt that its lease names, also with a refusal of check. A refusal is a fact
// of the runner's stream, as with writes.
func (s *Service) onLiveLease(ctx context.Context, call LeaseCall, kind string, check func(domain.Attempt, domain.Fence, time.Time) error) (domain.Attempt, error) {
	rec, f, err := s.fence(ctx, call)
	if err != nil {
		if !rec.AttemptID.IsZero() {
			s.noteRefusal(ctx, call.RunnerID, rec, kind, err)
		}
		return domain.Attempt{}, err
	}
	l, err := s.Store.Load(ctx, AttemptStream(rec.AttemptID), newCommandID().UUID())
	if err != nil {
		return domain.Attempt{}, err
	}
	a, err := fold(ctx, s.Store, attempts, AttemptStream(rec.AttemptID), l.Head)
	if err != nil {
		return a, err
	}
	p, err := s.presenceWithin(ctx, presenceFor)
	if err != nil {
		return a, err
	}
	f.ResumedAt = p.Since(l.Now)
	err = check(a, f, l.Now)
	if errors.Is(err, domain.ErrLeaseLost) {
		// The service may have come back since the cached presence was read.
		if p, err = s.Presence(ctx); err != nil {
			return a, err
		}
		f.ResumedAt = p.Since(l.Now)
		err = check(a, f, l.Now)
	}
	if err != nil {
		s.noteRefusal(ctx, call.RunnerID, rec, kind, err)
	}
	return a, err
}
