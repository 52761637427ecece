package verification

import (
	"crypto/tls"
	"maps"
	"sync"
	"time"
)

// attributes are the facts of one try. A connection that is still being made
// when its try has ended may add to them, which the snapshot no longer shows.
// The zero value is empty.
type attributes struct {
	mu sync.Mutex
	m  map[string]any
}

func (a *attributes) set(name string, value any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.m == nil {
		a.m = map[string]any{}
	}
	a.m[name] = value
}

func (a *attributes) snapshot() map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.m)
}

func describeTLS(state tls.ConnectionState, attrs *attributes) {
	attrs.set("tls_version", tls.VersionName(state.Version))
	if len(state.PeerCertificates) > 0 {
		attrs.set("certificate_not_after", state.PeerCertificates[0].NotAfter.UTC().Format(time.RFC3339))
	}
}
