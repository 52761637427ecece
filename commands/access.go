package commands

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

// accesses are the streams of guarded reads, one for each day and replica.
var accesses = aggregate[domain.AccessLog]{domain.AccessStateVersion, domain.EvolveAccess, projections.AccessChanges, nil, nil}

const accessPrefix = "access/"

// AccessStream names the stream of one day's guarded reads at one replica.
func AccessStream(day time.Time, replica string) eventstore.StreamID {
	return eventstore.StreamID(accessPrefix + day.UTC().Format(time.DateOnly) + "/" + replica)
}

// replicaName is a name that a stream may have: letters, digits, - and _, at most
// 64 of them. A name without any is replaced by one of its own.
func replicaName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name)
	if name = name[:min(len(name), 64)]; strings.Trim(name, "-") == "" {
		return uuid.NewString()
	}
	return name
}

// SecretRead is a question where a secret artifact lies.
type SecretRead struct {
	AttemptID domain.AttemptID
	Artifact  string // its name
	Role      string // of the API, of whoever asks
}

var (
	errReader      = &domain.Error{Kind: domain.KindForbidden, Code: policy.CodeSecretReaderNotAllowed, Message: "policy does not let this role see where the secret artifact is", Next: "an operator names readers in the secret mapping that stores it"}
	errNotRecorded = &domain.Error{Kind: domain.KindUnavailable, Code: "access_not_recorded", Message: "the read could not be recorded, so it is not answered", Next: "ask again later"}
)

// ReadSecret decides whether somebody may be told where a secret artifact lies, by
// the active bundle, and records the answer before it is given: nil for yes, an
// error of kind forbidden for no. What cannot be recorded is an error of kind
// unavailable. One actor, object and minute make one event of each answer, at
// whatever replica.
func (s *Service) ReadSecret(ctx context.Context, actor eventstore.Actor, r SecretRead) error {
	c, err := s.Created(ctx, r.AttemptID)
	if err != nil {
		return err
	}
	v := s.Policy().DecideReader(policy.ReaderInput{Action: c.Action, JobType: c.JobType, Environment: c.Environment, Artifact: r.Artifact, Role: r.Role})
	access := domain.Access{AttemptID: r.AttemptID, Object: "secret_artifact", Name: r.Artifact, BundleDigest: v.BundleDigest, Rules: v.Rules}
	for _, reason := range v.Reasons {
		access.Reasons = append(access.Reasons, reason.Code)
	}
	if err := s.noteAccess(ctx, actor, access, v.Allow); err != nil {
		if ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "a guarded read cannot be recorded and is not answered", "attempt_id", r.AttemptID.String(), "error", err)
		}
		refused := *errNotRecorded
		refused.Err = err
		return &refused
	}
	if !v.Allow {
		return errReader.With("role", r.Role)
	}
	return nil
}

var errReferenceErased = &domain.Error{Kind: domain.KindNotFound, Code: "secret_artifact_unknown", Message: "where the secret artifact lies was erased from the ledger's texts",
	Next: "look for it in Vault under the path that the secret mapping gives"}

// SecretReference is where a secret artifact lies, by the URI of its event. Whoever
// asks for somebody must have had yes from ReadSecret.
func (s *Service) SecretReference(ctx context.Context, uri string) (string, error) {
	ref := domain.SecretReference(uri)
	if ref == "" {
		return uri, nil
	}
	var d eventstore.Digest
	if n, err := hex.Decode(d[:], []byte(ref)); err != nil || n != len(d) {
		return "", errors.New("the reference of a secret artifact is no digest of a text; run execution-plane verify")
	}
	t, err := s.Store.ReadText(ctx, d)
	if errors.Is(err, eventstore.ErrErased) {
		return "", errReferenceErased
	}
	if err != nil {
		return "", fmt.Errorf("read the reference of a secret artifact: %w", err)
	}
	return string(t.Bytes), nil
}

func (s *Service) noteAccess(ctx context.Context, actor eventstore.Actor, access domain.Access, granted bool) error {
	now, err := s.clock(ctx)
	if err != nil {
		return err
	}
	access.Minute = now.UTC().Truncate(time.Minute)
	verdict := "denied"
	if granted {
		verdict = "granted"
	}
	id := strings.Join([]string{verdict, actor.Kind, actor.ID, actor.Role, access.Object, access.Name, access.Minute.Format(time.RFC3339)}, "\x00")
	m := Meta{CommandID: domain.DeriveCommandID(access.AttemptID.UUID(), id), Digest: sha256.Sum256([]byte(id)), Actor: actor}
	stream := AccessStream(now, s.Replica)
	_, err = carryOut(ctx, s, accesses, stream, m, eventstore.ClassUrgent,
		func(a domain.AccessLog, now time.Time) (decision, error) {
			events, err := domain.DecideAccess(a, domain.NoteAccess{Access: access, Granted: granted}, now)
			return decision{events: events}, err
		})
	if errors.Is(err, domain.ErrCommandReused) && s.notedElsewhere(ctx, stream, m) {
		return nil
	}
	return err
}

// notedElsewhere says whether another replica recorded this very read.
func (s *Service) notedElsewhere(ctx context.Context, stream eventstore.StreamID, m Meta) bool {
	l, err := s.Store.Load(ctx, stream, m.CommandID.UUID())
	return err == nil && l.Done != nil && strings.HasPrefix(string(l.Done.Stream), accessPrefix) && l.Done.CommandDigest == m.Digest
}

// clock is the database's.
func (s *Service) clock(ctx context.Context) (time.Time, error) {
	l, err := s.Store.Load(ctx, ServiceStream, uuid.Nil)
	return l.Now, err
}
