package callbacks

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Bounds of a secret file.
const (
	maxSecretBytes = 64 << 10
	maxKeys        = 8
	minKeyBytes    = 24
	maxKeyBytes    = 64

	// secretEvery is how often a file is read again at most.
	secretEvery = time.Second
)

// keys sign. All of them sign every message, so that a receiver can change from
// one to the next at its own time.
type keys struct {
	shared []*webhooks.Webhook
	own    []ed25519.PrivateKey
}

// secrets are the keys in a file, which is read again when it changes.
type secrets struct {
	path string

	mu      sync.Mutex
	content []byte    // what was read last, good or not; guarded by mu
	keys    keys      // of the last good content; guarded by mu
	broken  error     // why the present content is not used; guarded by mu
	looked  time.Time // guarded by mu
}

func openSecrets(path string) (*secrets, error) {
	content, err := readBounded(path, maxSecretBytes)
	if err != nil {
		return nil, err
	}
	k, err := parseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &secrets{path: path, content: content, keys: k, looked: time.Now()}, nil
}

// current gives the keys to sign with. changed says that the file's content is
// another than before; broken, why it is not used: then the keys are those of
// before.
func (s *secrets) current() (k keys, changed bool, broken error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < secretEvery {
		return s.keys, false, s.broken
	}
	s.looked = time.Now()
	content, err := readBounded(s.path, maxSecretBytes)
	if err != nil {
		changed = s.content != nil
		s.content, s.broken = nil, err
		return s.keys, changed, s.broken
	}
	if s.content != nil && bytes.Equal(content, s.content) {
		return s.keys, false, s.broken
	}
	s.content = content
	fresh, err := parseKeys(content)
	if s.broken = err; err == nil {
		s.keys = fresh
	}
	return s.keys, true, s.broken
}

// parseKeys reads one key for each line; empty lines and those that begin with #
// are passed over. The error names lines, never what is in them.
func parseKeys(content []byte) (keys, error) {
	var k keys
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := k.add(line); err != nil {
			return keys{}, fmt.Errorf("line %d %w", n, err)
		}
	}
	switch {
	case len(k.shared) == 0:
		return keys{}, errors.New("it has no line whsec_<base64>: write whsec_ and the base64 of 32 random bytes (openssl rand -base64 32)")
	case len(k.shared)+len(k.own) > maxKeys:
		return keys{}, fmt.Errorf("it has more than %d keys: remove those that no receiver uses any more", maxKeys)
	}
	return k, nil
}

func (k *keys) add(line string) error {
	if text, ok := strings.CutPrefix(line, "whsec_"); ok {
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || len(key) < minKeyBytes || len(key) > maxKeyBytes {
			return fmt.Errorf("is not whsec_ and the padded base64 of %d to %d bytes", minKeyBytes, maxKeyBytes)
		}
		hook, err := webhooks.NewWebhookRaw(key)
		if err != nil {
			return errors.New("cannot be used as a key")
		}
		k.shared = append(k.shared, hook)
		return nil
	}
	if text, ok := strings.CutPrefix(line, "whsk_"); ok {
		key, err := base64.StdEncoding.Strict().DecodeString(text)
		switch {
		case err == nil && len(key) == ed25519.SeedSize:
			k.own = append(k.own, ed25519.NewKeyFromSeed(key))
			return nil
		case err == nil && len(key) == ed25519.PrivateKeySize && bytes.Equal(key, ed25519.NewKeyFromSeed(key[:ed25519.SeedSize])):
			k.own = append(k.own, key)
			return nil
		}
		return fmt.Errorf("is not whsk_ and the padded base64 of an Ed25519 seed of %d bytes, or of seed and public key", ed25519.SeedSize)
	}
	return errors.New("begins with neither whsec_ nor whsk_: write one key for each line")
}
