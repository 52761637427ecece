package api

import (
	"context"

	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// ResultReads are results as they were fixed when their attempts ended, a little
// behind the ledger. *projections.Reader is the one there is.
type ResultReads interface {
	// ResultsAfter returns results behind a place in the feed, in feed order. What is
	// behind one that was seen never appears before it. A page may be short without
	// being the last; an empty one is the end.
	ResultsAfter(ctx context.Context, seq int64, limit int) ([]projections.StoredResult, error)
	// StoredResult is an attempt's result; false where it is not written, or not yet.
	StoredResult(ctx context.Context, id domain.AttemptID) (projections.StoredResult, bool, error)
}
