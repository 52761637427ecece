package objects

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/platform-core/execution-plane-service/bundle"
)

// Presigned is the right to do one request without credentials.
type Presigned struct {
	Method string
	URL    string
	Header http.Header // to be sent exactly so; every one is signed
	Until  time.Time
}

// PresignPut returns the right to store exactly these bytes under key, once. A
// server that checks checksums refuses others; call Verify before the upload is
// believed in any case. ttl is at least 1 s and at most 7 days. Nothing is sent.
//
// An upload that is answered 412 found the key taken; Verify tells by what.
func (b *Bucket) PresignPut(ctx context.Context, key string, size int64, sum bundle.SHA256, ttl time.Duration) (Presigned, error) {
	if size < 0 || sum.IsZero() {
		return Presigned{}, fmt.Errorf("presigning an upload of %s: size and digest must be known", b.name(key))
	}
	if size > MaxObject {
		return Presigned{}, fmt.Errorf("presigning an upload of %s: %w: %d bytes, at most %d", b.name(key), ErrTooLarge, size, int64(MaxObject))
	}
	header := http.Header{}
	for name, value := range digestHeaders(sum) {
		header.Set(name, value)
	}
	header.Set("If-None-Match", "*")
	header.Set("Content-Length", strconv.FormatInt(size, 10))
	return b.presign(ctx, http.MethodPut, key, ttl, nil, header)
}

// PresignGet returns the right to read key. filename, if not empty, is offered
// to a browser as the name to save under.
func (b *Bucket) PresignGet(ctx context.Context, key string, ttl time.Duration, filename string) (Presigned, error) {
	query := url.Values{}
	if filename != "" {
		query.Set("response-content-disposition", "attachment; filename*=UTF-8''"+url.PathEscape(filename))
	}
	return b.presign(ctx, http.MethodGet, key, ttl, query, http.Header{})
}

func (b *Bucket) presign(ctx context.Context, method, key string, ttl time.Duration, query url.Values, header http.Header) (Presigned, error) {
	if key == "" {
		return Presigned{}, fmt.Errorf("presigning a %s at %s: a key is needed", method, b.name(key))
	}
	until := time.Now().Add(ttl).UTC()
	u, err := b.client.PresignHeader(ctx, method, b.config.Bucket, key, ttl, query, header)
	if err != nil {
		return Presigned{}, fmt.Errorf("presigning a %s of %s for %s: %w", method, b.name(key), ttl, err)
	}
	return Presigned{Method: method, URL: u.String(), Header: header, Until: until}, nil
}
