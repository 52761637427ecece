package policy_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/policy"
)

// Without a bundle of one's own no job reads a secret; for development there is one
// place.
func TestTheBuiltInBundlesAndSecrets(t *testing.T) {
	decide := func(b *policy.Bundle, environment, ref string) policy.SecretsVerdict {
		return b.DecideSecrets(policy.SecretsInput{Action: "verify.tcp.connect", JobType: "verification", Environment: environment,
			Secrets: []policy.SecretRequest{{Ref: ref}}})
	}
	for _, c := range []struct {
		bundle           *policy.Bundle
		environment, ref string
		allow            bool
	}{
		{policy.Builtin(), "dev", "vault://secret/dev/db", false},
		{policy.BuiltinDev(), "dev", "vault://secret/dev/db", true},
		{policy.BuiltinDev(), "test", "vault://secret/dev/a/b#password?version=2", true},
		{policy.BuiltinDev(), "prod", "vault://secret/dev/db", false},
		{policy.BuiltinDev(), "dev", "vault://secret/dev", false},
		{policy.BuiltinDev(), "dev", "vault://secret/other/db", false},
		{policy.BuiltinDev(), "dev", "vault://kv/dev/db", false},
	} {
		v := decide(c.bundle, c.environment, c.ref)
		if v.Allow != c.allow || v.Allow && v.Token.Role != "execution-plane-dev" {
			t.Errorf("%s in %s: %+v", c.ref, c.environment, v)
		}
	}
}

// A job without secrets is decided as before there were any, by the same digest of
// its input.
func TestSecretsOfAJobAreDecidedAtSubmit(t *testing.T) {
	in := policy.Input{Action: "verify.tcp.connect", JobType: "verification", Environment: "dev", Runner: "verification-runner", Isolation: "process",
		Targets: []policy.Target{{ResourceID: "r", Host: "127.0.0.1", Port: 80}}}
	without := policy.BuiltinDev().Decide(in)
	in.Secrets = []policy.SecretRequest{}
	if again := policy.BuiltinDev().Decide(in); !without.Allow || again.InputDigest != without.InputDigest {
		t.Errorf("without secrets: %+v, %+v", without, again)
	}
	in.Secrets = []policy.SecretRequest{{Name: "db", Ref: "vault://secret/dev/db"}, {Ref: "vault://kv/elsewhere"}}
	v := policy.BuiltinDev().Decide(in)
	if v.Allow || len(v.Reasons) != 1 || v.Reasons[0].Code != policy.CodeSecretMountNotAllowed {
		t.Errorf("one of two: %+v", v)
	}
	in.Secrets = in.Secrets[:1]
	if v := policy.BuiltinDev().Decide(in); !v.Allow || v.InputDigest == without.InputDigest {
		t.Errorf("a mapped one: %+v", v)
	}
}
