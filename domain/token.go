package domain

import (
	"fmt"
	"time"
)

// TokenStateVersion numbers the shape of Token and Enrolment as stored in a head.
const TokenStateVersion = 1

// The roles of bearer tokens.
const (
	RoleControlPlane = "control-plane"
	RoleRunner       = "runner"
	RoleAuditor      = "auditor"
	RoleViewer       = "viewer"
	RoleOperator     = "operator"
)

// Roles lists the roles a token may have.
func Roles() []string {
	return []string{RoleControlPlane, RoleRunner, RoleAuditor, RoleViewer, RoleOperator}
}

// Token is the folded state of a bearer token's stream.
type Token struct {
	TokenCreated
	CreatedAt time.Time  `json:"created_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// TokenCommand is what somebody wants of a token.
type TokenCommand interface{ tokenCommand() }

// CreateToken makes a token.
type CreateToken struct{ Created TokenCreated }

// RevokeToken ends it; again is no change.
type RevokeToken struct{ ReasonText TextRef }

func (CreateToken) tokenCommand() {}
func (RevokeToken) tokenCommand() {}

// DecideToken answers a command on a token.
func DecideToken(t Token, c TokenCommand, _ time.Time) ([]Event, error) {
	switch c := c.(type) {
	case CreateToken:
		if !t.TokenID.IsZero() {
			return nil, ErrCommandReused
		}
		return []Event{c.Created}, nil
	case RevokeToken:
		if t.TokenID.IsZero() {
			return nil, &Error{Kind: KindNotFound, Code: "token_unknown", Message: "there is no such token", Next: "list them: execution-plane token list"}
		}
		if t.RevokedAt != nil {
			return nil, nil
		}
		return []Event{TokenRevoked{ReasonText: c.ReasonText}}, nil
	}
	return nil, fmt.Errorf("token command %T is not known", c)
}

// EvolveToken folds one event into a token's state.
func EvolveToken(t Token, e Event, at time.Time) (Token, error) {
	switch e := e.(type) {
	case TokenCreated:
		return Token{TokenCreated: e, CreatedAt: at}, nil
	case TokenRevoked:
		t.RevokedAt = &at
		return t, nil
	}
	return t, fmt.Errorf("event %s does not belong to a token", e.EventType())
}

// Enrolment is the folded state of a one-time enrolment's stream.
type Enrolment struct {
	EnrolmentCreated
	CreatedAt time.Time  `json:"created_at"`
	UsedBy    RunnerID   `json:"used_by,omitzero"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

// EnrolmentCommand is what somebody wants of an enrolment.
type EnrolmentCommand interface{ enrolmentCommand() }

// CreateEnrolment makes a one-time token for a pool.
type CreateEnrolment struct{ Created EnrolmentCreated }

// UseEnrolment lets one runner in. The same runner may repeat it, since its
// reply can be lost; another is refused.
type UseEnrolment struct {
	RunnerID RunnerID
	TokenID  TokenID
}

// RevokeEnrolment ends an unused enrolment.
type RevokeEnrolment struct{ ReasonText TextRef }

func (CreateEnrolment) enrolmentCommand() {}
func (UseEnrolment) enrolmentCommand()    {}
func (RevokeEnrolment) enrolmentCommand() {}

// DecideEnrolment answers a command on an enrolment.
func DecideEnrolment(n Enrolment, c EnrolmentCommand, now time.Time) ([]Event, error) {
	switch c := c.(type) {
	case CreateEnrolment:
		if !n.EnrolmentID.IsZero() {
			return nil, ErrCommandReused
		}
		return []Event{c.Created}, nil
	case UseEnrolment:
		if !n.EnrolmentID.IsZero() && n.UsedBy == c.RunnerID {
			return nil, nil
		}
		if n.EnrolmentID.IsZero() || n.RevokedAt != nil || !n.UsedBy.IsZero() || !now.Before(n.ExpiresAt) {
			return nil, ErrEnrolment
		}
		return []Event{EnrolmentUsed(c)}, nil
	case RevokeEnrolment:
		if n.EnrolmentID.IsZero() || n.RevokedAt != nil || !n.UsedBy.IsZero() {
			return nil, ErrEnrolment
		}
		return []Event{EnrolmentRevoked{ReasonText: c.ReasonText}}, nil
	}
	return nil, fmt.Errorf("enrolment command %T is not known", c)
}

// EvolveEnrolment folds one event into an enrolment's state.
func EvolveEnrolment(n Enrolment, e Event, at time.Time) (Enrolment, error) {
	switch e := e.(type) {
	case EnrolmentCreated:
		return Enrolment{EnrolmentCreated: e, CreatedAt: at}, nil
	case EnrolmentUsed:
		n.UsedBy = e.RunnerID
		return n, nil
	case EnrolmentRevoked:
		n.RevokedAt = &at
		return n, nil
	}
	return n, fmt.Errorf("event %s does not belong to an enrolment", e.EventType())
}
