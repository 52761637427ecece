package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/platform-core/execution-plane-service/api/wire"
)

// UploadError is an object store's refusal. 412 says that the object is already
// there: register it, and the service compares the bytes.
type UploadError struct {
	Status int
	// Code is the store's own error code, such as "BadDigest"; "" if it gave none.
	Code string
}

func (e *UploadError) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("object storage refused the upload with status %d", e.Status)
	}
	return fmt.Sprintf("object storage refused the upload with status %d (%s)", e.Status, e.Code)
}

// PutObject sends exactly size bytes of body to where an ArtifactAnswer said,
// once. The bearer token is not sent there and no redirect is followed: the URL
// is the right. A refusal is an *UploadError; a store that cannot be reached
// satisfies ErrUnreachable. Neither error shows the URL, since it is a secret.
func (c *Client) PutObject(ctx context.Context, u wire.Upload, body io.Reader, size int64) error {
	target, err := url.Parse(u.URL)
	if err != nil || (target.Scheme != "http" && target.Scheme != "https") || target.Host == "" || u.Method != http.MethodPut {
		return fmt.Errorf("uploading an object: the answer named no usable address and method")
	}
	src := io.LimitReader(body, size)
	if size == 0 {
		src = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, u.Method, u.URL, src)
	if err != nil {
		return fmt.Errorf("uploading an object to %s: the request cannot be made", target.Host)
	}
	for name, value := range u.Headers {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Length":
			if value != strconv.FormatInt(size, 10) {
				return fmt.Errorf("uploading an object: it has %d bytes, %s were announced", size, value)
			}
		case "Host":
			req.Host = value
		case "Authorization", "Cookie":
			return fmt.Errorf("uploading an object: the answer asks for a header that is never sent there")
		default:
			req.Header.Set(name, value)
		}
	}
	req.ContentLength = size
	req.Header.Set("User-Agent", c.userAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return transportError(ctx, u.Method, "object at "+target.Host, withoutURL(err))
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // only the code in it is used
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &UploadError{Status: resp.StatusCode, Code: storeCode(string(b))}
	}
	return nil
}

// withoutURL drops the URL that net/http puts into its errors.
func withoutURL(err error) error {
	var e *url.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

func storeCode(body string) string {
	_, rest, ok := strings.Cut(body, "<Code>")
	code, _, end := strings.Cut(rest, "</Code>")
	if !ok || !end || len(code) > 64 || strings.ContainsFunc(code, func(r rune) bool { return r < '0' || r > 'z' }) {
		return ""
	}
	return code
}
