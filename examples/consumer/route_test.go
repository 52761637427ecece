package main_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/examples/consumer/ledger"
	"github.com/platform-core/execution-plane-service/forwarder"
)

// What the example holds a record's key against is what the forwarder gives it.
func TestKeysAreTheForwarders(t *testing.T) {
	for _, stream := range []string{
		"attempt/a", "bundle/a", "runner/r", "callback/ops/a", "endpoint/ops", "token/t", "enrolment/e", "access/2026-01-02/replica-1",
		"service", "forwarder/execution.attempts/a", "forwarder/execution.attempts/*", "operation/o", "package/p", "other/x/y", "callback/x", "attempt",
	} {
		if _, want := forwarder.DefaultTopics().Route(eventstore.StreamID(stream), "any"); ledger.KeyOf(stream) != want {
			t.Errorf("%s: %s, the forwarder gives %s", stream, ledger.KeyOf(stream), want)
		}
	}
}
