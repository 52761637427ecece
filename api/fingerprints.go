package api

import (
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

const (
	printBytes = 8
	// maxCertain bounds what a runner may say of the shortest leak that its prints
	// cannot miss, in bytes.
	maxCertain = 1 << 20
)

func (s *server) fingerprintKey(q *request) error {
	key, err := s.Commands.FingerprintKey(q.Context(), q.lease)
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.FingerprintKey{Key: key[:], Limit: projections.MaxFingerprints})
}

func (s *server) addFingerprints(q *request) error {
	if !q.query.has("certain") {
		return malformed("query_required", "the query parameter certain is required", "")
	}
	certain, err := q.query.number("certain", 0, 1, maxCertain)
	if err != nil {
		return err
	}
	if len(q.body)%printBytes != 0 {
		return &domain.Error{Kind: domain.KindInvalid, Code: "fingerprints_cut", Message: fmt.Sprintf("the body has %d bytes; a print has 8", len(q.body)),
			Next: "send whole prints, 8 bytes each, big-endian, without a separator"}
	}
	prints := make([]uint64, len(q.body)/printBytes)
	for i := range prints {
		prints[i] = binary.BigEndian.Uint64(q.body[i*printBytes:])
	}
	kept, err := s.Commands.AddFingerprints(q.Context(), q.lease, prints, int(certain))
	if err != nil {
		return err
	}
	return q.json(http.StatusOK, wire.FingerprintsAnswer{Prints: kept})
}
