package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// ObjectLocation is where an object's bytes can be fetched for a short while.
type ObjectLocation struct {
	URL    string // the right to fetch: a secret
	SHA256 string // of the bytes, in hex
	Bytes  int64  // -1 where the service does not say
}

// Input asks where an attempt's input lies: an input artifact by its name, or the
// package that its parameters name as package:<sha256>.
func (c *Client) Input(ctx context.Context, l Lease, name string) (ObjectLocation, error) {
	k := l.call(domain.CommandID{}, "/inputs/"+url.PathEscape(name))
	k.method = http.MethodGet
	return c.location(ctx, k)
}

// ArtifactLocation asks where the bytes of an artifact lie, by its id.
func (c *Client) ArtifactLocation(ctx context.Context, id domain.ArtifactID) (ObjectLocation, error) {
	return c.location(ctx, &call{method: http.MethodGet, path: "/v1/artifacts/" + url.PathEscape(id.String())})
}

// PackageLocation asks where the bytes of a package lie.
func (c *Client) PackageLocation(ctx context.Context, sha256 string) (ObjectLocation, error) {
	at, err := c.location(ctx, &call{method: http.MethodGet, path: "/v1/packages/" + url.PathEscape(sha256)})
	if err == nil && at.SHA256 == "" {
		at.SHA256 = sha256
	}
	return at, err
}

// location reads the one answer of the API that sends its caller elsewhere. It is
// not followed here, where the bearer token would go with it.
func (c *Client) location(ctx context.Context, k *call) (ObjectLocation, error) {
	k.also = http.StatusTemporaryRedirect
	a, err := c.read(ctx, k)
	if err != nil {
		return ObjectLocation{}, err
	}
	at := ObjectLocation{URL: a.header.Get("Location"), SHA256: a.header.Get(wire.HeaderContentSHA256), Bytes: -1}
	if a.status != http.StatusTemporaryRedirect || at.URL == "" {
		return ObjectLocation{}, fmt.Errorf("%s %s: the answer names no place to fetch from; do versions match?", k.method, k.path)
	}
	if n, err := strconv.ParseInt(a.header.Get(wire.HeaderBytes), 10, 64); err == nil && n >= 0 {
		at.Bytes = n
	}
	return at, nil
}

// DownloadError says that object storage refused to give an object.
type DownloadError struct {
	Status int
	Code   string // the store's own, if it can be shown
}

func (e *DownloadError) Error() string {
	return fmt.Sprintf("object storage refused the download with status %d (%s)", e.Status, e.Code)
}

// GetObject begins to fetch an object from where a location said. The bearer token
// is not sent there and no redirect is followed. size is -1 where the store does not
// say; the caller closes body. A refusal is a *DownloadError; a store that cannot be
// reached satisfies ErrUnreachable. Neither error shows the URL.
func (c *Client) GetObject(ctx context.Context, at string) (body io.ReadCloser, size int64, err error) {
	target, err := url.Parse(at)
	if err != nil || (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" {
		return nil, 0, errors.New("fetching an object: the answer named no usable address")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, 0, fmt.Errorf("fetching an object from %s: the request cannot be made", target.Host)
	}
	req.Header.Set("User-Agent", c.userAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, transportError(ctx, http.MethodGet, "object at "+target.Host, withoutURL(err))
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // only the code in it is used
		return nil, 0, &DownloadError{Status: resp.StatusCode, Code: storeCode(string(b))}
	}
	return resp.Body, resp.ContentLength, nil
}
