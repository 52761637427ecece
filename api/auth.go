package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/projections"
)

// The prefixes of tokens: "ep_<token id>_<secret>" and "ee_<enrolment id>_<secret>".
const (
	prefixBearer    = "ep_"
	prefixEnrolment = "ee_"
)

// Codes of 401.
const (
	codeTokenMissing = "token_missing"
	codeTokenInvalid = "token_invalid"
	codeTokenRevoked = "token_revoked"
	codeTokenExpired = "token_expired"
)

func unauthenticated(code, message string) error {
	return &domain.Error{Kind: domain.KindUnauthenticated, Code: code, Message: message,
		Next: "send Authorization: Bearer ep_…; an operator makes tokens: execution-plane token create"}
}

var (
	errNoToken    = unauthenticated(codeTokenMissing, "the request carries no bearer token")
	errBadToken   = unauthenticated(codeTokenInvalid, "the bearer token is not known")
	errOldToken   = unauthenticated(codeTokenExpired, "the bearer token has expired")
	errDeadToken  = unauthenticated(codeTokenRevoked, "the bearer token was revoked")
	errRole       = &domain.Error{Kind: domain.KindForbidden, Code: "role_refused", Message: "the token's role may not do this"}
	errForeign    = &domain.Error{Kind: domain.KindForbidden, Code: "runner_mismatch", Message: "the token belongs to another runner", Next: "use the token that this runner got when it enrolled"}
	errEnrolRoute = &domain.Error{Kind: domain.KindForbidden, Code: "enrolment_token", Message: "an enrolment token is good for POST /v1/runners only", Next: "register the runner, then use its own token"}
)

// identity is who calls.
type identity struct {
	role     string
	runnerID domain.RunnerID // zero unless the role is runner
	tokenID  domain.TokenID
	actor    eventstore.Actor
	// enrolment is set instead of all else where an enrolment token was sent.
	enrolment *commands.EnrolmentProof
}

var secretPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{16,200}$`)

// splitToken reads "<prefix><uuid>_<secret>".
func splitToken(token, prefix string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(token, prefix)
	if !ok || len(rest) < 38 || rest[36] != '_' || !secretPattern.MatchString(rest[37:]) {
		return "", "", false
	}
	return rest[:36], rest[37:], true
}

// bearer takes the token out of the one Authorization header.
func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", errNoToken
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", errBadToken
	}
	return token, nil
}

// authenticate finds out who calls. An enrolment's secret is not checked here:
// using it is a command.
func (s *server) authenticate(ctx context.Context, h http.Header) (identity, error) {
	token, err := bearer(h)
	if err != nil {
		return identity{}, err
	}
	if id, secret, ok := splitToken(token, prefixEnrolment); ok {
		eid, err := domain.ParseID[domain.EnrolmentID](id)
		if err != nil {
			return identity{}, errBadToken
		}
		return identity{enrolment: &commands.EnrolmentProof{ID: eid, Secret: secret}}, nil
	}
	id, secret, ok := splitToken(token, prefixBearer)
	tid, err := domain.ParseID[domain.TokenID](id)
	if !ok || err != nil {
		return identity{}, errBadToken
	}
	// A held request has no timeout of its own; looking the token up has.
	ctx, cancel := context.WithTimeout(ctx, s.RequestTimeout)
	defer cancel()
	rec, err := s.tokens.get(ctx, tid)
	if err != nil {
		if domain.KindOf(err) == domain.KindNotFound {
			return identity{}, errBadToken
		}
		return identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(digestOf(secret)), []byte(rec.SHA256)) != 1 {
		return identity{}, errBadToken
	}
	switch {
	case rec.RevokedAt != nil:
		return identity{}, errDeadToken
	case rec.ExpiresAt != nil && !s.now().Before(*rec.ExpiresAt):
		return identity{}, errOldToken
	}
	who := identity{role: rec.Role, tokenID: tid, actor: eventstore.Actor{Kind: rec.Role, ID: rec.Name, Role: rec.Role, Auth: "token"}}
	if rec.Role == domain.RoleRunner && rec.RunnerID != nil {
		who.runnerID = domain.NewID[domain.RunnerID](*rec.RunnerID)
		who.actor.ID = who.runnerID.String()
	}
	return who, nil
}

// authorise says whether the table lets the caller use the route.
func authorise(who identity, r *Route) error {
	if who.enrolment != nil {
		if r.Enrolment {
			return nil
		}
		return errEnrolRoute
	}
	for _, role := range r.Roles {
		if role == who.role && (role != domain.RoleRunner || !who.runnerID.IsZero()) {
			return nil
		}
	}
	return errRole.With("role", who.role).With("allowed", r.Roles)
}

func digestOf(secret string) string {
	d := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(d[:])
}

// newSecret makes the secret of a token: 256 random bits.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails: crypto/rand aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// tokenCacheFor is how long a replica may believe what it read of a token,
// counted from before the read: a revocation is known everywhere within 5 s.
const tokenCacheFor = 4 * time.Second

// maxCachedTokens bounds the cache; when it is full it is emptied.
const maxCachedTokens = 10_000

// tokenCache spares a read for each request of a busy caller. Unknown ids are
// not kept: a flood of them must not fill it.
type tokenCache struct {
	read func(context.Context, domain.TokenID) (projections.TokenView, error)
	now  func() time.Time

	mu   sync.Mutex
	kept map[domain.TokenID]keptToken // guarded by mu
	// forgotten counts forget calls, so that a read that began before one is not
	// kept after it; guarded by mu.
	forgotten int
}

type keptToken struct {
	rec   projections.TokenView
	until time.Time
}

func (c *tokenCache) get(ctx context.Context, id domain.TokenID) (projections.TokenView, error) {
	began := c.now()
	c.mu.Lock()
	k, ok := c.kept[id]
	generation := c.forgotten
	c.mu.Unlock()
	if ok && began.Before(k.until) {
		return k.rec, nil
	}
	rec, err := c.read(ctx, id)
	if err != nil {
		return rec, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgotten == generation {
		if len(c.kept) >= maxCachedTokens {
			clear(c.kept)
		}
		c.kept[id] = keptToken{rec, began.Add(tokenCacheFor)}
	}
	return rec, nil
}

// forget makes this replica know of a change at once.
func (c *tokenCache) forget(id domain.TokenID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kept, id)
	c.forgotten++
}
