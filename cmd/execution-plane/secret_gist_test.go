package main

import (
	"testing"
	"time"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// A timeline says of each secret what was read and with what, in one line.
func TestSecretEventsHaveAGist(t *testing.T) {
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		event domain.Event
		want  string
	}{
		{domain.SecretTokenIssued{Purpose: "read", Policies: []string{"read-db", "read-key"}, ExpiresAt: until}, "to read, with read-db, read-key, until 03:04:05"},
		{domain.SecretResolved{Name: "db", Reference: "vault://kv/db#password", Version: 3}, "db is vault://kv/db#password, version 3"},
		{domain.SecretResolved{Name: "db", Reference: "vault://kv/db#password?version=2", Version: 2, Unmasked: true}, "db is vault://kv/db#password?version=2, too short to be masked"},
		{domain.SecretResolved{Name: "login", Reference: "vault://database/creds/app"}, "login is vault://database/creds/app"},
		{domain.SecretRevoked{Accessors: []string{"a", "b"}}, "tokens: 2"},
	} {
		name, schema, payload, err := domain.EncodeEvent(c.event)
		if err != nil {
			t.Fatal(err)
		}
		if got := eventGist(wire.Event{Type: name, Schema: schema, PayloadBase64: payload}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
