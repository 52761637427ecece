package api_test

import (
	"context"
	"slices"

	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/projections"
)

func (w *world) Keep(_ context.Context, b *policy.Bundle) error {
	w.kept = b.Digest()
	return w.failing()
}

func (w *world) ActivePolicy(context.Context) (string, bool, error) {
	return w.active, w.active != "", w.failing()
}

func (w *world) ReplacePolicy(_ context.Context, m commands.Meta, digest, reason string) error {
	if err := w.note(m); err != nil {
		return err
	}
	w.active = digest
	return nil
}

func (r reader) PrivilegedFacts(_ context.Context, f projections.PrivilegedFilter) ([]eventstore.Event, error) {
	var out []eventstore.Event
	for _, e := range slices.Backward(r.stream) {
		if e.Actor.Role == domain.RoleOperator && (f.Before == 0 || e.Position < f.Before) && len(out) < f.Limit {
			out = append(out, e)
		}
	}
	return out, r.failing()
}
