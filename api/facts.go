package api

import (
	"slices"
	"strings"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// Limits of facts about secrets.
const (
	maxAccessors = 50
	maxName      = 200  // bytes of a name or code
	maxReference = 1000 // bytes of a reference or of a lease id of Vault
)

// factOf reads the one fact of a request. No message repeats a text of it.
func factOf(b *wire.FactRequest) (domain.Event, error) {
	given := 0
	for _, is := range []bool{b.PolicyDecided != nil, b.ProcessTreeReaped != nil, b.SecretTokenIssued != nil, b.SecretResolved != nil, b.SecretRevoked != nil} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return nil, violation("", "one_of", "holds exactly one of policy_decided, process_tree_reaped, secret_token_issued, secret_resolved and secret_revoked")
	case b.PolicyDecided != nil:
		return policyFact(b.PolicyDecided)
	case b.ProcessTreeReaped != nil:
		return reapedFact(b.ProcessTreeReaped)
	case b.SecretTokenIssued != nil:
		return tokenFact(b.SecretTokenIssued)
	case b.SecretResolved != nil:
		return secretFact(b.SecretResolved)
	}
	if err := checkAccessors("/secret_revoked/accessors", b.SecretRevoked.Accessors); err != nil {
		return nil, err
	}
	return domain.SecretRevoked{Accessors: b.SecretRevoked.Accessors}, nil
}

func policyFact(p *wire.PolicyFact) (domain.Event, error) {
	const at = "/policy_decided"
	switch {
	case p.Verdict != "allow" && p.Verdict != "deny":
		return nil, violation(at+"/verdict", "enum", "is one of allow, deny")
	case !isSHA256(p.BundleDigest):
		return nil, violation(at+"/bundle_digest", "pattern", "is 64 lower-case hex digits")
	case !isSHA256(p.InputDigest):
		return nil, violation(at+"/input_digest", "pattern", "is 64 lower-case hex digits")
	case !names(p.Rules, 100):
		return nil, violation(at+"/rules", "invalid", "has at most 100 entries of 1 to 200 bytes")
	case !names(p.Reasons, 100):
		return nil, violation(at+"/reasons", "invalid", "has at most 100 entries of 1 to 200 bytes")
	case !privileges(p.Privileges):
		return nil, violation(at+"/privileges", "enum", "holds sudo, destructive, elevated, each at most once")
	}
	slices.Sort(p.Privileges) // as the ledger has them
	return domain.PolicyDecided{At: "runner", Verdict: p.Verdict, BundleDigest: p.BundleDigest, InputDigest: p.InputDigest, Rules: p.Rules, Reasons: p.Reasons}, nil
}

// privileges reports whether a list holds what a verdict can grant, and nothing twice.
func privileges(list []string) bool {
	for i, x := range list {
		if !slices.Contains(domain.Privileges(), x) || slices.Contains(list[:i], x) {
			return false
		}
	}
	return true
}

func reapedFact(r *wire.ReapedFact) (domain.Event, error) {
	const at = "/process_tree_reaped"
	switch {
	case r.Survivors < 0 || r.Survivors > 1<<20:
		return nil, violation(at+"/survivors", "range", "is from 0 to 1048576")
	case !slices.Contains([]string{"subreaper", "cgroup", "pid_namespace"}, r.Method):
		return nil, violation(at+"/method", "enum", "is one of subreaper, cgroup, pid_namespace")
	}
	return domain.ProcessTreeReaped{Survivors: r.Survivors, Confirmed: r.Confirmed, Method: r.Method}, nil
}

func tokenFact(t *wire.TokenFact) (domain.Event, error) {
	const at = "/secret_token_issued"
	if err := checkAccessor(at+"/accessor", t.Accessor); err != nil {
		return nil, err
	}
	switch {
	case !text(t.Role, 1, maxName):
		return nil, violation(at+"/role", "invalid", "has from 1 to 200 bytes without control characters")
	case !names(t.Policies, maxAccessors):
		return nil, violation(at+"/policies", "invalid", "has at most 50 entries of 1 to 200 bytes")
	case t.ExpiresAt.Year() < 2000 || t.ExpiresAt.Year() > 9999:
		return nil, violation(at+"/expires_at", "range", "is when Vault ends the token")
	case t.Purpose != "read" && t.Purpose != "store":
		return nil, violation(at+"/purpose", "enum", "is one of read, store")
	}
	return domain.SecretTokenIssued{Accessor: t.Accessor, Role: t.Role, Policies: t.Policies, ExpiresAt: t.ExpiresAt.UTC().Truncate(time.Microsecond), Purpose: t.Purpose}, nil
}

func secretFact(s *wire.SecretFact) (domain.Event, error) {
	const at = "/secret_resolved"
	if err := checkAccessor(at+"/accessor", s.Accessor); err != nil {
		return nil, err
	}
	if _, err := policy.ParseSecretReference(s.Reference); err != nil {
		return nil, violation(at+"/reference", "reference", "is no reference: "+err.Error())
	}
	switch {
	case s.Index < 0 || s.Index >= domain.MaxSecrets:
		return nil, violation(at+"/index", "range", "is a place in inputs.secrets")
	case !text(s.Name, 0, maxName):
		return nil, violation(at+"/name", "invalid", "has at most 200 bytes without control characters")
	case s.Version < 0 || s.Version > 1<<31-1:
		return nil, violation(at+"/version", "range", "is a version of KV version 2, from 1; 0 for none")
	case !text(s.Engine, 1, maxName):
		return nil, violation(at+"/engine", "invalid", "has from 1 to 200 bytes without control characters")
	case !text(s.Mapping, 1, maxName):
		return nil, violation(at+"/mapping", "invalid", "has from 1 to 200 bytes without control characters")
	case !text(s.LeaseID, 0, maxReference):
		return nil, violation(at+"/lease_id", "invalid", "has at most 1000 bytes without control characters")
	case !names(s.Weak, 50):
		return nil, violation(at+"/weak", "invalid", "has at most 50 entries of 1 to 200 bytes")
	}
	return domain.SecretResolved{Index: s.Index, Name: s.Name, Reference: s.Reference, Version: s.Version, Engine: s.Engine, Mapping: s.Mapping,
		Accessor: s.Accessor, LeaseID: s.LeaseID, Unmasked: s.Unmasked, Weak: s.Weak}, nil
}

// text reports whether s is printable and has from low to high bytes.
func text(s string, low, high int) bool {
	return len(s) >= low && len(s) <= high && printable(s)
}

// names reports whether a list has at most so many entries of 1 to 200 bytes.
func names(list []string, most int) bool {
	return len(list) <= most && !slices.ContainsFunc(list, func(v string) bool { return !text(v, 1, maxName) })
}

func checkAccessor(pointer, accessor string) error {
	if !isAccessor(accessor) {
		return violation(pointer, "invalid", "is the accessor of a Vault token, not the token: at most 200 letters, digits and -._")
	}
	return nil
}

func checkAccessors(pointer string, accessors []string) error {
	if len(accessors) == 0 || len(accessors) > maxAccessors || slices.ContainsFunc(accessors, func(a string) bool { return !isAccessor(a) }) {
		return violation(pointer, "invalid", "has from 1 to 50 accessors of Vault tokens, not the tokens: each of at most 200 letters, digits and -._")
	}
	return nil
}

// tokenBeginnings are how Vault's tokens begin, of this day and of earlier ones. An
// accessor never does: with a token in its place everybody who reads events had it.
var tokenBeginnings = []string{"hvs.", "hvb.", "hvr.", "s.", "b.", "r."}

func isAccessor(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return text(s, 1, maxName) && !slices.ContainsFunc(tokenBeginnings, func(p string) bool { return strings.HasPrefix(s, p) })
}
