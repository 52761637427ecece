package callbacks

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

// sign gives the value of the header webhook-signature: one signature for each
// key in the file's order, those of shared keys (v1) before those of Ed25519 keys
// (v1a). What is signed is "<id>.<seconds>.<body>".
func (k keys) sign(id string, at time.Time, body []byte) (string, error) {
	all := make([]string, 0, len(k.shared)+len(k.own))
	for _, key := range k.shared {
		s, err := key.Sign(id, at, body)
		if err != nil {
			return "", fmt.Errorf("signing a callback: %w", err)
		}
		all = append(all, s)
	}
	if len(k.own) > 0 {
		signed := append(fmt.Appendf(nil, "%s.%d.", id, at.Unix()), body...)
		for _, key := range k.own {
			all = append(all, "v1a,"+base64.StdEncoding.EncodeToString(ed25519.Sign(key, signed)))
		}
	}
	return strings.Join(all, " "), nil
}
