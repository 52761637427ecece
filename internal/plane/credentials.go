package plane

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
)

// local is somebody who has the database's own credentials: the first token of a
// deployment is made this way, all later ones through the API.
func local(what string) commands.Meta {
	return commands.Meta{
		CommandID: domain.NewID[domain.CommandID](uuid.New()), Digest: sha256.Sum256([]byte(what)),
		Actor: eventstore.Actor{Kind: "operator", ID: "local", Role: domain.RoleOperator, Auth: "database"},
	}
}

func newSecret() (secret, sha string) {
	var b [32]byte
	rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	secret = hex.EncodeToString(b[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, hex.EncodeToString(sum[:])
}

// IssueToken makes a bearer token and returns it: the only time it is seen.
func IssueToken(ctx context.Context, s *commands.Service, name, role string) (string, error) {
	secret, sha := newSecret()
	id := domain.NewID[domain.TokenID](uuid.New())
	err := s.CreateToken(ctx, local("token create"), domain.TokenCreated{TokenID: id, Name: name, Role: role, SHA256: sha})
	return "ep_" + id.String() + "_" + secret, err
}

// IssueEnrolment makes a one-time token that lets one runner into a pool.
func IssueEnrolment(ctx context.Context, s *commands.Service, pool string, good time.Duration) (string, error) {
	secret, sha := newSecret()
	id := domain.NewID[domain.EnrolmentID](uuid.New())
	err := s.CreateEnrolment(ctx, local("runner enroll"), domain.EnrolmentCreated{EnrolmentID: id, Pool: pool, SHA256: sha, ExpiresAt: time.Now().Add(good).UTC().Truncate(time.Microsecond)})
	return "ee_" + id.String() + "_" + secret, err
}
