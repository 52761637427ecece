package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/platform-core/execution-plane-service/bundle"
)

// probeText is what the object under probeKey holds.
const (
	probeKey  = probePrefix + "read-back"
	probeText = "what was stored can be read\n"
)

// Probe makes sure that the server gives back what was stored: it reads an object
// of its own, which it puts there first if need be. Nil means yes.
func (b *Bucket) Probe(ctx context.Context) error {
	// Read first: who may only read can tell too, once the object is there.
	err := b.readProbe(ctx)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	err = b.Put(ctx, probeKey, strings.NewReader(probeText), int64(len(probeText)), bundle.Sum([]byte(probeText)), PutOptions{ContentType: "text/plain"})
	if err != nil {
		return err
	}
	return b.readProbe(ctx)
}

func (b *Bucket) readProbe(ctx context.Context) error {
	r, err := b.Get(ctx, probeKey, 0, -1)
	if err != nil {
		return err
	}
	defer r.Close()
	got, err := io.ReadAll(io.LimitReader(r, 1<<10))
	if err != nil {
		return err
	}
	if string(got) != probeText {
		return fmt.Errorf("probing %s: %w: it gives back %d other bytes", b.name(probeKey), ErrUnavailable, len(got))
	}
	return nil
}
