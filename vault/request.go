package vault

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/hashicorp/vault/api"
)

// request is one call to Vault.
type request struct {
	doing string // for errors
	path  string // without /v1/
	query url.Values
	body  map[string]any // nil without text: a read
	text  *outgoing      // the body as JSON, of a caller that is done with it later
}

func neverAgain(context.Context, *http.Response, error) (bool, error) { return false, nil }

// once makes one request and gives its answer, or an *Error. A 404 that carries
// data is an answer: KV version 2 tells of a deleted version so.
func (e *endpoint) once(ctx context.Context, c *api.Client, r request) (*answer, error) {
	bound, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	var resp *api.Response
	var err error
	if r.body != nil {
		text, bad := json.Marshal(r.body)
		if bad != nil {
			return nil, &Error{Kind: ErrMalformed, Doing: r.doing, Detail: "the parameters are no JSON"}
		}
		r.text = &outgoing{text: text}
		defer r.text.done()
	}
	if r.text == nil {
		resp, err = c.Logical().ReadRawWithDataWithContext(bound, r.path, r.query)
	} else {
		resp, err = c.Logical().WriteRawWithContext(r.text.in(bound), r.path, r.text.text)
	}
	if resp == nil || resp.Body == nil {
		return nil, transportError(ctx, r.doing, err)
	}
	defer resp.Body.Close()
	body, readErr := readAll(resp.Body, resp.ContentLength)
	if readErr != nil {
		return nil, transportError(ctx, r.doing, readErr)
	}
	defer clear(body)
	out := &answer{}
	jsonErr := error(nil)
	if len(body) > 0 {
		jsonErr = json.Unmarshal(body, out)
	}
	out.Status = resp.StatusCode
	if resp.StatusCode >= http.StatusBadRequest {
		if resp.StatusCode == http.StatusNotFound && jsonErr == nil && len(out.Data) > 0 {
			return out, nil
		}
		out.wipe()
		return nil, statusError(r.doing, out)
	}
	if jsonErr != nil || err != nil {
		out.wipe()
		return nil, &Error{
			Kind: ErrUnavailable, Doing: r.doing, Status: resp.StatusCode,
			Detail: "the answer is not in Vault's form; is the address that of a Vault server?",
		}
	}
	return out, nil
}
