package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
)

// File is a body that is sent while it is read, once.
type File struct {
	Body io.Reader
	// Bytes is its size; negative where it is not known.
	Bytes int64
	// SHA256 is its digest in hex; empty where it is not known. With both the service
	// keeps no copy of its own on the way.
	SHA256      string
	ContentType string // empty for application/octet-stream
}

// PutArtifact puts a file to an operation for its jobs, which name it by
// artifact://operation/<name>. sensitivity is public or internal, empty for internal.
// The same bytes again give the artifact that is there; created says that it is new.
func (c *Client) PutArtifact(ctx context.Context, key domain.CommandID, op domain.OperationID, name, sensitivity string, f File) (a wire.PutArtifact, created bool, err error) {
	k := &call{method: http.MethodPut, path: "/v1/operations/" + url.PathEscape(op.String()) + "/artifacts/" + url.PathEscape(name)}
	if sensitivity != "" {
		k.query = url.Values{"sensitivity": {sensitivity}}
	}
	k.key(key)
	return sendFile[wire.PutArtifact](ctx, c, k, f)
}

// PutArtifacts lists what was put to an operation, the newest first.
func (c *Client) PutArtifacts(ctx context.Context, op domain.OperationID) ([]wire.OperationArtifact, error) {
	p, err := get[wire.Page[wire.OperationArtifact]](ctx, c, "/v1/operations/"+url.PathEscape(op.String())+"/artifacts", nil)
	return p.Items, err
}

// PushPackage pushes a package of playbooks whose digest is f.SHA256. created says
// that it was not there.
func (c *Client) PushPackage(ctx context.Context, key domain.CommandID, f File) (p wire.Package, created bool, err error) {
	k := &call{method: http.MethodPut, path: "/v1/packages/" + url.PathEscape(f.SHA256)}
	k.key(key)
	return sendFile[wire.Package](ctx, c, k, f)
}

// Packages lists the packages that were pushed, by name.
func (c *Client) Packages(ctx context.Context) ([]wire.StoredPackage, error) {
	p, err := get[wire.Page[wire.StoredPackage]](ctx, c, "/v1/packages", nil)
	return p.Items, err
}

// sendFile does a call whose body is a file, once: who wants to repeat it has to bring
// the body again.
func sendFile[T any](ctx context.Context, c *Client, k *call, f File) (out T, created bool, err error) {
	k.file = &f
	if f.SHA256 != "" {
		k.set(wire.HeaderContentSHA256, f.SHA256)
	}
	// The answer to a refusal is worth more than the rest of the body.
	k.set("Expect", "100-continue")
	a, err := c.readOnce(ctx, k)
	if err != nil {
		return out, false, err
	}
	return out, a.status == http.StatusCreated, decode(k, a.body, &out)
}

// attach gives a request a file as its body.
func (f *File) attach(req *http.Request) {
	req.ContentLength = f.Bytes
	switch {
	case f.Bytes < 0:
		req.ContentLength = -1
		req.Body = io.NopCloser(f.Body)
	case f.Bytes == 0:
		req.Body = http.NoBody
	default:
		req.Body = io.NopCloser(io.LimitReader(f.Body, f.Bytes))
	}
	t := f.ContentType
	if t == "" {
		t = "application/octet-stream"
	}
	req.Header.Set("Content-Type", t)
}
