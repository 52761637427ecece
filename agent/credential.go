package agent

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/domain"
)

// credential is who this runner is, kept in StateDir/credential.json (0600).
// The secret is made here; the service knows its digest only.
type credential struct {
	RunnerID domain.RunnerID `json:"runner_id"`
	// TokenID is zero until the service has let the runner in.
	TokenID domain.TokenID `json:"token_id,omitzero"`
	Secret  string         `json:"secret"` // 64 hex digits
}

// bearer is the runner's own token.
func (c credential) bearer() string { return "ep_" + c.TokenID.String() + "_" + c.Secret }

// loadCredential reads the credential, or makes one and writes it before it is
// used: an enrolment whose answer was lost is repeated with the same id and secret.
func loadCredential(stateDir string) (credential, error) {
	path := credentialPath(stateDir)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id, err := uuid.NewRandom()
		if err != nil {
			return credential{}, fmt.Errorf("make a runner id: %w", err)
		}
		c := credential{RunnerID: domain.NewID[domain.RunnerID](id), Secret: newSecret()}
		return c, c.save(stateDir)
	}
	if err != nil {
		return credential{}, fmt.Errorf("read the runner's credential: %w", err)
	}
	var c credential
	if err := json.Unmarshal(b, &c); err != nil || c.RunnerID.IsZero() || len(c.Secret) != 64 {
		// The bytes are not quoted: they hold the secret.
		return credential{}, fmt.Errorf("the runner's credential %s cannot be read; remove it and enrol the runner anew", path)
	}
	return c, nil
}

func (c credential) save(stateDir string) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write the runner's credential: %w", err)
	}
	if err := writeDurable(credentialPath(stateDir), append(b, '\n')); err != nil {
		return fmt.Errorf("write the runner's credential: %w", err)
	}
	return nil
}

func credentialPath(stateDir string) string { return filepath.Join(stateDir, "credential.json") }

// newSecret is 256 random bits as hex, which holds no separator of a token.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

// secretSHA256 is how the service knows a secret: the digest of its text.
func secretSHA256(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
