package s3embed

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AWS Signature Version 4.
const (
	algorithm     = "AWS4-HMAC-SHA256"
	amzTime       = "20060102T150405Z"
	maxSkew       = 15 * time.Minute
	maxExpires    = 7 * 24 * time.Hour
	unsigned      = "UNSIGNED-PAYLOAD"
	headerSHA256  = "X-Amz-Checksum-Sha256"
	headerPayload = "X-Amz-Content-Sha256"
)

// refusal is an answer of the gate: an S3 error code and its HTTP status.
type refusal struct {
	status  int
	code    string
	message string
}

func (r *refusal) Error() string { return r.code + ": " + r.message }

func denied(code, message string) *refusal {
	return &refusal{http.StatusForbidden, code, message}
}

func malformed(code, message string) *refusal {
	return &refusal{http.StatusBadRequest, code, message}
}

// signed is what a valid signature covers and what the chunks of its body are
// signed with.
type signed struct {
	payload   string // the value that stands for the body
	time      string // in amzTime form
	scope     string
	key       []byte
	signature string
}

// claim is what a request says of its signature.
type claim struct {
	credential string
	headers    []string
	signature  string
	time       string
	payload    string
	presigned  bool
}

// check verifies the request's signature with the one pair of keys there is.
func (k keyPair) check(r *http.Request, now time.Time) (signed, error) {
	query := r.URL.Query()
	var c claim
	var err error
	if query.Has("X-Amz-Algorithm") || query.Has("X-Amz-Signature") {
		c, err = claimOfQuery(query, now)
	} else {
		c, err = claimOfHeader(r.Header, now)
	}
	if err != nil {
		return signed{}, err
	}
	access, scope, _ := strings.Cut(c.credential, "/")
	parts := strings.Split(scope, "/")
	if len(parts) != 4 || parts[0] != c.time[:8] || parts[2] != "s3" || parts[3] != "aws4_request" {
		return signed{}, malformed("AuthorizationHeaderMalformed", "the credential scope must be <date>/<region>/s3/aws4_request")
	}
	if subtle.ConstantTimeCompare([]byte(access), []byte(k.AccessKey)) != 1 {
		return signed{}, denied("InvalidAccessKeyId", "the access key is unknown")
	}
	if err := coversEnough(r, c); err != nil {
		return signed{}, err
	}
	key := []byte("AWS4" + k.SecretKey)
	for _, part := range parts {
		key = mac(key, part)
	}
	request := sha256.Sum256([]byte(canonicalRequest(r, query, c)))
	want := mac(key, algorithm+"\n"+c.time+"\n"+scope+"\n"+hex.EncodeToString(request[:]))
	got, err := hex.DecodeString(c.signature)
	if err != nil || !hmac.Equal(want, got) {
		return signed{}, denied("SignatureDoesNotMatch", "the signature does not fit the request")
	}
	return signed{payload: c.payload, time: c.time, scope: scope, key: key, signature: c.signature}, nil
}

func claimOfHeader(h http.Header, now time.Time) (claim, error) {
	rest, ok := strings.CutPrefix(h.Get("Authorization"), algorithm)
	if !ok {
		return claim{}, denied("AccessDenied", "every request must be signed with "+algorithm)
	}
	c := claim{time: h.Get("X-Amz-Date"), payload: h.Get(headerPayload)}
	for _, field := range strings.Split(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential":
			c.credential = value
		case "SignedHeaders":
			c.headers = strings.Split(value, ";")
		case "Signature":
			c.signature = value
		}
	}
	at, err := time.Parse(amzTime, c.time)
	if err != nil || c.payload == "" {
		return claim{}, malformed("AuthorizationHeaderMalformed", "X-Amz-Date and X-Amz-Content-Sha256 are needed")
	}
	if skew := now.Sub(at).Abs(); skew > maxSkew {
		return claim{}, denied("RequestTimeTooSkewed", "the request's time is more than 15 minutes off")
	}
	return c, nil
}

func claimOfQuery(q url.Values, now time.Time) (claim, error) {
	c := claim{
		credential: q.Get("X-Amz-Credential"), headers: strings.Split(q.Get("X-Amz-SignedHeaders"), ";"),
		signature: q.Get("X-Amz-Signature"), time: q.Get("X-Amz-Date"), payload: unsigned, presigned: true,
	}
	at, err := time.Parse(amzTime, c.time)
	seconds, err2 := strconv.Atoi(q.Get("X-Amz-Expires"))
	if q.Get("X-Amz-Algorithm") != algorithm || err != nil || err2 != nil || seconds < 1 || seconds > int(maxExpires/time.Second) {
		return claim{}, malformed("AuthorizationQueryParametersError", "algorithm, date and an expiry of 1 s to 7 days are needed")
	}
	if at.Sub(now) > maxSkew || !now.Before(at.Add(time.Duration(seconds)*time.Second)) {
		return claim{}, denied("AccessDenied", "the presigned request has expired or is not valid yet")
	}
	return c, nil
}

// coversEnough refuses a request with headers that matter and are not signed:
// whoever carries a request must not be able to change it.
func coversEnough(r *http.Request, c claim) error {
	if !slices.Contains(c.headers, "host") {
		return malformed("AuthorizationHeaderMalformed", "the host header must be signed")
	}
	for name := range r.Header {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "x-amz-") && !slices.Contains(c.headers, lower) && (!c.presigned || name != headerPayload) {
			return denied("AccessDenied", "the header "+lower+" is not signed")
		}
	}
	return nil
}

func canonicalRequest(r *http.Request, query url.Values, c claim) string {
	var b strings.Builder
	b.WriteString(r.Method + "\n" + encode(r.URL.Path, true) + "\n")
	var pairs []string
	for name, values := range query {
		if name == "X-Amz-Signature" {
			continue
		}
		for _, v := range values {
			pairs = append(pairs, encode(name, false)+"="+encode(v, false))
		}
	}
	slices.Sort(pairs)
	b.WriteString(strings.Join(pairs, "&") + "\n")
	for _, name := range c.headers {
		b.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	b.WriteString("\n" + strings.Join(c.headers, ";") + "\n" + c.payload)
	return b.String()
}

func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	var values []string
	for _, v := range r.Header.Values(name) {
		values = append(values, strings.Join(strings.Fields(v), " "))
	}
	return strings.Join(values, ",")
}

func encode(s string, path bool) string {
	const hexUpper = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '-', c == '_', c == '.', c == '~', c == '/' && path:
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hexUpper[c>>4], hexUpper[c&15]})
		}
	}
	return b.String()
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
