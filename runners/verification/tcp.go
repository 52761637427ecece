package verification

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"regexp"
	"time"
	"unicode/utf8"
)

// maxBanner bounds what is read of a server's greeting, in bytes.
const maxBanner = 4 << 10

type tcpExpectation struct {
	named
	Connect       bool   `json:"connect"`
	BannerMatches string `json:"banner_matches"`
	MaxLatencyMS  int    `json:"max_latency_ms"`
	banner        *regexp.Regexp
}

type tcpProber struct {
	plan   plan
	guard  *guard
	expect []tcpExpectation
	reads  bool // some expectation is about the greeting
}

func newTCPProber(req Request, p plan, g *guard) (*tcpProber, error) {
	t := &tcpProber{plan: p, guard: g}
	params := struct {
		Expect []tcpExpectation `json:"expect"`
	}{}
	if err := decode(req.Parameters, &params); err != nil {
		return nil, err
	}
	t.expect = params.Expect
	for i := range t.expect {
		e := &t.expect[i]
		if e.BannerMatches == "" {
			continue
		}
		re, err := regexp.Compile(e.BannerMatches)
		if err != nil {
			return nil, errors.New("banner_matches is no RE2 regular expression")
		}
		e.banner, t.reads = re, true
	}
	return t, nil
}

func (t *tcpProber) expectations() []named {
	out := make([]named, len(t.expect))
	for i, e := range t.expect {
		out[i] = e.named
	}
	return out
}

func (t *tcpProber) try(ctx context.Context) observation {
	began := time.Now()
	conn, err := t.guard.dial(ctx, t.plan.target.Host, t.plan.target.Port)
	connected := time.Since(began)
	if err != nil {
		return failedTry(err, connected, len(t.expect), nil)
	}
	defer conn.Close()
	o := observation{seen: true, latency: connected, attrs: remoteAttribute(conn)}
	var banner []byte
	var bannerErr error
	if t.reads {
		banner, bannerErr = readBanner(ctx, conn)
		o.latency = time.Since(began)
		o.class, _ = classify(bannerErr)
		sum := sha256.Sum256(banner)
		if utf8.Valid(banner) && len(banner) > 0 {
			o.told = map[string]any{"banner": string(banner)}
		}
		o.attrs["banner_bytes"], o.attrs["banner_sha256"] = len(banner), hex.EncodeToString(sum[:])
	}
	for _, e := range t.expect {
		j, latency := judgement{sight: held}, connected
		if e.banner != nil {
			j, latency = judgeBanner(e.banner, banner, bannerErr), o.latency
		}
		o.judged = append(o.judged, j.and(withinLatency(latency, e.MaxLatencyMS)))
	}
	return o
}

func judgeBanner(want *regexp.Regexp, banner []byte, err error) judgement {
	if want.Match(banner) {
		return judgement{sight: held}
	}
	if err == nil {
		return broke(reasonBanner)
	}
	class, seen := classify(err)
	if seen {
		return broke(class)
	}
	return judgement{unseen, class}
}

// readBanner reads the first line that the server sends by itself, without its
// line end. With an error it gives what came before it.
func readBanner(ctx context.Context, conn net.Conn) ([]byte, error) {
	defer bindToContext(ctx, conn)()
	buf := make([]byte, 0, maxBanner)
	for len(buf) < maxBanner {
		n, err := conn.Read(buf[len(buf):maxBanner])
		buf = buf[:len(buf)+n]
		if i := bytes.IndexByte(buf, '\n'); i >= 0 {
			return bytes.TrimSuffix(buf[:i], []byte("\r")), nil
		}
		if errors.Is(err, io.EOF) && len(buf) > 0 {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}
