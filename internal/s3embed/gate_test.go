package s3embed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/minio/minio-go/v7/pkg/signer"
)

var testKeys = keyPair{AccessKey: "access", SecretKey: "secret"}

// passed is what came through the gate to a recorder that reads every body.
type passed struct {
	body []byte
	err  error
	seen *http.Request
}

func through(t *testing.T, r *http.Request, now time.Time) (int, string, *passed) {
	t.Helper()
	var p *passed
	g := &gate{keys: testKeys, now: func() time.Time { return now }, next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		p = &passed{body, err, r}
	})}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Code, w.Body.String(), p
}

func request(t *testing.T, method, target, body string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:9000"+target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// signHeader signs as a client does, now.
func signHeader(r *http.Request, payload string) *http.Request {
	r.Header.Set(headerPayload, payload)
	signed := signer.SignV4(*r, testKeys.AccessKey, testKeys.SecretKey, "", "us-east-1")
	return signed
}

func presign(r *http.Request, seconds int64) *http.Request {
	return signer.PreSignV4(*r, testKeys.AccessKey, testKeys.SecretKey, "", "us-east-1", seconds)
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func base64Sum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func TestGateLetsSignedRequestsThrough(t *testing.T) {
	for name, r := range map[string]*http.Request{
		"header":        signHeader(request(t, "PUT", "/b/dir/a%20b+c%21", "body"), hexSum("body")),
		"unsigned body": signHeader(request(t, "PUT", "/b/k", "body"), unsigned),
		"query":         presign(request(t, "PUT", "/b/k", "body"), 60),
		"query, header": presign(request(t, "PUT", "/b/k", "body", headerSHA256, base64Sum("body"), "If-None-Match", "*", "Content-Length", "4"), 60),
		"parameters":    signHeader(request(t, "GET", "/b?list-type=2&prefix=a%2Fb&start-after=x%20y", ""), hexSum("")),
	} {
		status, text, p := through(t, r, time.Now())
		if status != http.StatusOK || p == nil || p.err != nil {
			t.Errorf("%s: %d %s %+v", name, status, text, p)
			continue
		}
		if r.Method == "PUT" && string(p.body) != "body" || p.seen.Header.Get(headerPayload) != "" {
			t.Errorf("%s: body %q, headers %v", name, p.body, p.seen.Header)
		}
	}
}

func TestGateRefuses(t *testing.T) {
	change := func(r *http.Request, f func(*http.Request)) *http.Request { f(r); return r }
	now := time.Now()
	tests := []struct {
		name   string
		r      *http.Request
		now    time.Time
		status int
		code   string
	}{
		{"nothing signed", request(t, "GET", "/b/k", ""), now, 403, "AccessDenied"},
		{"another scheme", request(t, "GET", "/b/k", "", "Authorization", "Basic YTpi"), now, 403, "AccessDenied"},
		{"version 2", request(t, "GET", "/b/k?AWSAccessKeyId=access&Signature=x&Expires=9999999999", ""), now, 403, "AccessDenied"},
		{"another method", change(signHeader(request(t, "GET", "/b/k", ""), hexSum("")), func(r *http.Request) { r.Method = "DELETE" }), now, 403, "SignatureDoesNotMatch"},
		{"another path", change(signHeader(request(t, "GET", "/b/k", ""), hexSum("")), func(r *http.Request) { r.URL.Path = "/b/k2" }), now, 403, "SignatureDoesNotMatch"},
		{"another host", change(signHeader(request(t, "GET", "/b/k", ""), hexSum("")), func(r *http.Request) { r.Host = "other" }), now, 403, "SignatureDoesNotMatch"},
		{"another parameter", change(signHeader(request(t, "GET", "/b?prefix=a", ""), hexSum("")), func(r *http.Request) { r.URL.RawQuery = "prefix=" }), now, 403, "SignatureDoesNotMatch"},
		{"another payload", change(signHeader(request(t, "PUT", "/b/k", "x"), hexSum("x")), func(r *http.Request) { r.Header.Set(headerPayload, unsigned) }), now, 403, "SignatureDoesNotMatch"},
		{"a header more", change(signHeader(request(t, "PUT", "/b/k", "x"), hexSum("x")), func(r *http.Request) { r.Header.Set("X-Amz-Meta-A", "b") }), now, 403, "AccessDenied"},
		{"another key", change(signHeader(request(t, "GET", "/b/k", ""), hexSum("")), func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "access/", "admin/", 1))
		}), now, 403, "InvalidAccessKeyId"},
		{"empty signature", change(signHeader(request(t, "GET", "/b/k", ""), hexSum("")), func(r *http.Request) {
			a := r.Header.Get("Authorization")
			r.Header.Set("Authorization", a[:strings.Index(a, "Signature=")+len("Signature=")])
		}), now, 403, "SignatureDoesNotMatch"},
		{"too old", signHeader(request(t, "GET", "/b/k", ""), hexSum("")), now.Add(16 * time.Minute), 403, "RequestTimeTooSkewed"},
		{"from the future", signHeader(request(t, "GET", "/b/k", ""), hexSum("")), now.Add(-16 * time.Minute), 403, "RequestTimeTooSkewed"},
		{"presigned, expired", presign(request(t, "GET", "/b/k", ""), 60), now.Add(61 * time.Second), 403, "AccessDenied"},
		{"presigned, for ever", presign(request(t, "GET", "/b/k", ""), 8*24*3600), now, 400, "AuthorizationQueryParametersError"},
		{"presigned, a longer life", change(presign(request(t, "GET", "/b/k", ""), 60), func(r *http.Request) {
			r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "X-Amz-Expires=60", "X-Amz-Expires=600", 1)
		}), now, 403, "SignatureDoesNotMatch"},
		{"presigned, a header less", change(presign(request(t, "PUT", "/b/k", "x", "If-None-Match", "*"), 60), func(r *http.Request) { r.Header.Del("If-None-Match") }), now, 403, "SignatureDoesNotMatch"},
		{"presigned, another length", presign(request(t, "PUT", "/b/k", "longer", "Content-Length", "4"), 60), now, 403, "SignatureDoesNotMatch"},
		{"an upload in parts", signHeader(request(t, "POST", "/b/k?uploads=", ""), hexSum("")), now, 501, "NotImplemented"},
		{"a form", signHeader(request(t, "POST", "/b", ""), hexSum("")), now, 501, "NotImplemented"},
		{"a copy", signHeader(request(t, "PUT", "/b/k", "", "X-Amz-Copy-Source", "/b/k2"), hexSum("")), now, 501, "NotImplemented"},
		{"an unknown checksum", signHeader(request(t, "PUT", "/b/k", "x", "X-Amz-Checksum-Md4", "eA=="), hexSum("x")), now, 501, "NotImplemented"},
		{"a malformed checksum", signHeader(request(t, "PUT", "/b/k", "x", headerSHA256, "eA=="), hexSum("x")), now, 400, "InvalidRequest"},
		{"an unknown payload form", signHeader(request(t, "PUT", "/b/k", "x"), "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"), now, 501, "NotImplemented"},
		{"a list that is not what was signed", signHeader(request(t, "POST", "/b?delete=", "<Delete><Object><Key>k</Key></Object></Delete> "), hexSum("")), now, 400, "BadDigest"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, text, p := through(t, tt.r, tt.now)
			if status != tt.status || !strings.Contains(text, "<Code>"+tt.code+"</Code>") || p != nil {
				t.Errorf("answered %d %s, passed %v; want %d %s", status, text, p != nil, tt.status, tt.code)
			}
			if strings.Contains(text, testKeys.SecretKey) {
				t.Error("the answer holds the secret key")
			}
		})
	}
}

func TestBodyThatIsNotWhatWasSigned(t *testing.T) {
	longer := signHeader(request(t, "PUT", "/b/k", "body and more"), unsigned)
	longer.ContentLength = 4
	shorter := signHeader(request(t, "PUT", "/b/k", "bo"), unsigned)
	shorter.ContentLength = 4
	for name, tt := range map[string]struct {
		r    *http.Request
		code gofakes3.ErrorCode
	}{
		"signed digest": {signHeader(request(t, "PUT", "/b/k", "other"), hexSum("body")), gofakes3.ErrBadDigest},
		"checksum":      {signHeader(request(t, "PUT", "/b/k", "other", headerSHA256, base64Sum("body")), unsigned), gofakes3.ErrBadDigest},
		"presigned":     {presign(request(t, "PUT", "/b/k", "other", headerSHA256, base64Sum("body")), 60), gofakes3.ErrBadDigest},
		"crc32c":        {signHeader(request(t, "PUT", "/b/k", "other", "X-Amz-Checksum-Crc32c", "AAAAAA=="), unsigned), gofakes3.ErrBadDigest},
		"longer":        {longer, gofakes3.ErrIncompleteBody},
		"shorter":       {shorter, gofakes3.ErrIncompleteBody},
	} {
		_, text, p := through(t, tt.r, time.Now())
		if p == nil || !gofakes3.HasErrorCode(p.err, tt.code) {
			t.Errorf("%s: passed %+v, answered %s, want %s", name, p, text, tt.code)
		}
	}
}

// chunks builds an aws-chunked body as signed chunks of the given texts.
func chunks(s signed, texts ...string) string {
	var b strings.Builder
	for _, text := range append(texts, "") {
		toSign := algorithm + "-PAYLOAD\n" + s.time + "\n" + s.scope + "\n" + s.signature + "\n" + emptySHA256 + "\n" + hexSum(text)
		s.signature = hex.EncodeToString(mac(s.key, toSign))
		fmt.Fprintf(&b, "%x;chunk-signature=%s\r\n%s\r\n", len(text), s.signature, text)
	}
	return b.String()
}

func TestChunkedBody(t *testing.T) {
	seed := signed{payload: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", time: "20260101T000000Z", scope: "20260101/us-east-1/s3/aws4_request", key: []byte("key"), signature: strings.Repeat("a", 64)}
	good := chunks(seed, "hello ", "world")
	read := func(s signed, body string, header ...string) (string, error) {
		c, err := newChunkedReader(request(t, "PUT", "/b/k", body, header...), s)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(iotest.OneByteReader(c))
		return string(data), err
	}
	if got, err := read(seed, good); got != "hello world" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	for i := range good {
		changed := []byte(good)
		changed[i] ^= 1
		if got, err := read(seed, string(changed)); err == nil && got != "hello world" {
			t.Errorf("byte %d changed: got %q and no error", i, got)
		}
		if _, err := read(seed, good[:i]); err == nil {
			t.Errorf("cut at byte %d: no error", i)
		}
	}
	other := seed
	other.signature = strings.Repeat("b", 64)
	if _, err := read(other, good); !gofakes3.HasErrorCode(err, gofakes3.ErrBadDigest) {
		t.Errorf("chunks of another request: %v", err)
	}
	swapped := chunks(seed, "world", "hello ")
	if _, err := read(seed, good[:strings.Index(good, "5;")]+swapped[strings.Index(swapped, "6;"):]); err == nil {
		t.Error("chunks of two bodies were put together")
	}
	trailer := seed
	trailer.payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	body := func(sum string) string { return "5\r\nhello\r\n0\r\n" + sum + "\r\n\r\n" }
	for _, tt := range []struct {
		name, body string
		want       bool
	}{
		{"right", body("x-amz-checksum-sha256:" + base64Sum("hello")), true},
		{"wrong", body("x-amz-checksum-sha256:" + base64Sum("hallo")), false},
		{"missing", "5\r\nhello\r\n0\r\n\r\n", false},
		{"another one", body("x-amz-checksum-crc32:AAAAAA=="), false},
		{"a long line", "5\r\nhello\r\n0\r\n" + strings.Repeat("x", 1<<20), false},
	} {
		got, err := read(trailer, tt.body, "X-Amz-Trailer", "x-amz-checksum-sha256")
		if (err == nil) != tt.want || tt.want && got != "hello" {
			t.Errorf("trailer that is %s: %q, %v", tt.name, got, err)
		}
	}
	if _, err := read(trailer, "", "X-Amz-Trailer", "x-amz-meta-a"); err == nil {
		t.Error("an unknown trailer was accepted")
	}
}

func FuzzChunkedReader(f *testing.F) {
	f.Add([]byte("5\r\nhello\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n"))
	f.Add([]byte("ffffffffffffffff\r\n"))
	f.Add([]byte("0\r\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest("PUT", "http://h/b/k", bytes.NewReader(body))
		r.Header.Set("X-Amz-Trailer", "x-amz-checksum-crc32")
		c, err := newChunkedReader(r, signed{payload: "STREAMING-UNSIGNED-PAYLOAD-TRAILER"})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(c)
		if len(data) > len(body) {
			t.Fatalf("%d bytes came out of %d", len(data), len(body))
		}
		if err == nil && len(body) < len(data)+len("0\r\n"+"x-amz-checksum-crc32:AAAAAA==") {
			t.Fatalf("accepted %q without a checksum", body)
		}
	})
}

func TestAnswerHidesWhatWasNotAskedFor(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set(headerSHA256, "sum")
		status, err := strconv.Atoi(r.URL.Query().Get("status"))
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
	})
	g := &gate{keys: testKeys, now: time.Now, next: next}
	for _, tt := range []struct {
		mode, status string
		want         string
	}{{"", "200", ""}, {"ENABLED", "200", "sum"}, {"ENABLED", "206", ""}} {
		r := request(t, "GET", "/b/k?status="+tt.status, "")
		if tt.mode != "" {
			r.Header.Set("X-Amz-Checksum-Mode", tt.mode)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, signHeader(r, hexSum("")).WithContext(context.Background()))
		if got := w.Header().Get(headerSHA256); got != tt.want || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%+v: headers %v", tt, w.Header())
		}
	}
}

func TestErrorInTheMiddleOfABodyCutsTheConnection(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		if _, err := io.WriteString(w, "half"); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusInternalServerError)
		if _, err := io.WriteString(w, strings.Repeat("e", 96)); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(&gate{keys: testKeys, now: time.Now, next: next})
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/b/k", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(signHeader(r, hexSum("")))
	if err != nil {
		return // cut before the head was sent
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("the answer %q looks whole", data)
	}
}
