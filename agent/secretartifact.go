package agent

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/masker"
	"github.com/platform-core/execution-plane-service/policy"
	"github.com/platform-core/execution-plane-service/vault"
)

const (
	// maxSecretArtifact bounds a secret artifact, in bytes: it is held in memory.
	maxSecretArtifact = 64 << 20
	// maxPatterns is how much of one secret artifact becomes patterns, in bytes.
	maxPatterns = masker.LongestValue
	patternPart = 64 << 10
	// maxAllPatterns is how much of all secret artifacts of an attempt does: patterns
	// take some hundred times their size, and an executor may announce a thousand.
	maxAllPatterns = 2 * maxPatterns
	// awayFor is how long Vault is not asked again after it was waited for in vain:
	// an executor that announces many must not hold its attempt for hours.
	awayFor = time.Minute
)

// refusedSecret is why a secret artifact was not taken, with a code for programs.
// Nothing of its bytes is in it.
type refusedSecret struct {
	code string
	err  error
}

func (r *refusedSecret) Error() string { return r.err.Error() }
func (r *refusedSecret) Unwrap() error { return r.err }

// keepSecret stores an artifact of sensitivity secret in Vault, or its key there
// and its encryption here, to be uploaded. In clear its bytes are only in memory.
// They are patterns of the masker, and the service has their fingerprints, before
// anything that the executor said after it is sent on. It is queued when it is
// stored: after a crash in between it is missing.
func (q *artifactQueue) keepSecret(a announced) (*queued, error) {
	at := q.at
	name := at.mask.String(a.name)
	if err := q.canStore(); err != nil {
		return nil, err
	}
	verdict, undecided := q.decideStore(name)
	value, done, err := q.readSecretOutput(a.path)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := at.hideArtifact(name, value); err != nil {
		return nil, err
	}
	if at.mask.String(name) != name {
		return nil, &refusedSecret{"secret_in_name", errors.New("its name shows a secret")}
	}
	if err := at.secrets.prints.send(at.working); err != nil {
		return nil, err
	}
	// What is refused was called secret all the same: it is masked from here on.
	if undecided != nil {
		return nil, undecided
	}
	if err := refusalOf(verdict); err != nil {
		return nil, err
	}
	if s := &at.secrets; s.awayErr != nil && time.Since(s.away) < awayFor {
		return nil, s.awayErr
	}
	q.serial++
	x := &queued{
		AnnounceKey: uuid.New(), RegisterKey: uuid.New(),
		path: filepath.Join(q.dir, fmt.Sprintf("%06d", q.serial)),
		Request: wire.ArtifactRequest{
			Name: name, Type: at.mask.String(a.kind), Output: a.output, Sensitivity: string(a.sensitivity),
			MediaType: at.mask.String(a.mediaType), Bytes: int64(len(value)),
		},
	}
	if x.Request.Vault, err = q.store(x, verdict, value); err != nil {
		_ = os.Remove(x.path + ".data")
		if errors.Is(err, vault.ErrUnavailable) || errors.Is(err, vault.ErrLogin) {
			at.secrets.away, at.secrets.awayErr = time.Now(), err
		}
		return nil, err
	}
	if err := x.save(); err != nil {
		return nil, fmt.Errorf("%w: %w", errDisk, err)
	}
	return x, nil
}

// canStore says what this runner lacks for secret artifacts.
func (q *artifactQueue) canStore() error {
	switch at := q.at; {
	case at.agent.vault == nil:
		return &refusedSecret{vault.CodeVaultUnavailable, errors.New(noVault)}
	case at.secrets.dir == nil:
		return &refusedSecret{"no_secret_output", errors.New("this runner has no private memory for secret artifacts")}
	}
	return nil
}

// decideStore asks policy where the artifact goes, before its first byte is read.
func (q *artifactQueue) decideStore(name string) (policy.StoreVerdict, error) {
	at := q.at
	bundle, err := at.bundle()
	if err != nil {
		return policy.StoreVerdict{}, err
	}
	v := bundle.DecideStore(policy.StoreInput{
		Action: at.spec.Action, JobType: at.spec.JobType, Environment: at.spec.Target.Environment,
		OperationID: at.spec.OperationID.String(), AttemptID: at.journal.AttemptID.String(), Artifact: name,
	})
	return v, at.tellVerdict(at.working, v.Verdict)
}

func refusalOf(v policy.StoreVerdict) error {
	switch {
	case v.Allow:
		return nil
	case len(v.Reasons) > 0:
		return &refusedSecret{v.Reasons[0].Code, errors.New(v.Reasons[0].Detail)}
	}
	return &refusedSecret{policy.CodeSecretStoreNotAllowed, errors.New("policy does not let it be stored")}
}

// readSecretOutput reads a file of the private output folder whole, in one piece of
// memory. Of large ones there is one at a time. done wipes it.
func (q *artifactQueue) readSecretOutput(path string) (value []byte, done func(), err error) {
	f, err := executor.OpenOutput(q.at.secrets.dir.Output(), path)
	if err != nil {
		return nil, nil, fmt.Errorf("a secret artifact stands in the task's secret_output_dir: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read an output: %w", err)
	}
	size := info.Size()
	if size > maxSecretArtifact {
		return nil, nil, &refusedSecret{"too_large", fmt.Errorf("it is larger than %d bytes", int64(maxSecretArtifact))}
	}
	release := func() {}
	if size > maxPatterns {
		q.at.agent.sealing.Lock()
		release = q.at.agent.sealing.Unlock
	}
	value = make([]byte, size)
	done = func() { clear(value); release() }
	n, err := io.ReadFull(f, value)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		done()
		return nil, nil, fmt.Errorf("read an output: %w", err)
	}
	return value[:n], done, nil
}

// hideArtifact makes patterns of a secret artifact. Of a large one that is the
// beginning, in parts that end with a line: the whole of it would take more memory
// than a runner has.
func (at *attempt) hideArtifact(name string, value []byte) error {
	most := min(maxPatterns, maxAllPatterns-at.secrets.patterned)
	if most <= 0 {
		return &refusedSecret{"too_large", fmt.Errorf("the secret artifacts of one job have more than %d bytes, which is all that can be masked", maxAllPatterns)}
	}
	at.agent.masks.add(at.mask)
	shown := "artifact/" + name
	at.secrets.patterned += min(len(value), most)
	if len(value) <= most {
		if _, err := at.mask.Add(shown, value); err != nil {
			return &refusedSecret{"not_maskable", err}
		}
		return nil
	}
	for rest := value[:most]; len(rest) > 0; {
		n := partEnd(rest)
		if _, err := at.mask.Add(shown, rest[:n]); err != nil && !unmaskable(err) {
			return &refusedSecret{"not_maskable", err}
		}
		rest = rest[n:]
	}
	at.log.Warn("a secret artifact is too large to be masked whole", "name", name, "bytes", len(value))
	at.note("secret_artifact_large", map[string]any{"name": name, "bytes": len(value), "masked_bytes": most})
	return nil
}

// partEnd is where the next part of a large value ends.
func partEnd(b []byte) int {
	if len(b) <= patternPart {
		return len(b)
	}
	for i := patternPart; i > patternPart/2; i-- {
		if b[i-1] == '\n' {
			return i
		}
	}
	return patternPart
}

// store writes the value to Vault, or where it is too large its encryption to the
// agent's disk and its key to Vault.
func (q *artifactQueue) store(x *queued, v policy.StoreVerdict, value []byte) (*wire.VaultArtifact, error) {
	at := q.at
	ctx := at.storing
	ref, err := vault.ParseReference(v.Reference)
	if err != nil {
		return nil, err
	}
	session, err := at.storeSession(ctx, v.Token)
	if err != nil {
		return nil, storeFailure(ctx, err)
	}
	hmacKey := make([]byte, 32)
	_, _ = rand.Read(hmacKey) // never fails: it ends the program instead
	defer clear(hmacKey)
	mac := hmac.New(sha256.New, hmacKey)
	mac.Write(value)
	out := &wire.VaultArtifact{HMACSHA256: hex.EncodeToString(mac.Sum(nil))}
	fields := map[string][]byte{"hmac_key": encoded(hmacKey), "name": []byte(x.Request.Name)}
	if x.Request.MediaType != "" {
		fields["media_type"] = []byte(x.Request.MediaType)
	}
	if utf8.Valid(value) {
		fields["value"] = value
	} else {
		fields["value_base64"] = encoded(value)
		defer clear(fields["value_base64"])
	}
	options := vault.WriteOptions{Mount: v.Mount, CreateOnly: true}
	written, err := session.Write(ctx, ref, fields, options)
	if errors.Is(err, vault.ErrTooLarge) {
		delete(fields, "value")
		delete(fields, "value_base64")
		if err := q.seal(x, value, fields, out); err != nil {
			return nil, err
		}
		written, err = session.Write(ctx, ref, fields, options)
	}
	clear(fields["key"])
	clear(fields["hmac_key"])
	if err != nil {
		return nil, storeFailure(ctx, err)
	}
	out.Reference = written.Reference.String()
	return out, nil
}

// seal encrypts a value to NNNN.data with AES-256-GCM: a nonce of 12 bytes, what is
// sealed, a tag of 16 bytes. The key is made for it and goes into fields.
func (q *artifactQueue) seal(x *queued, value []byte, fields map[string][]byte, out *wire.VaultArtifact) error {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	defer clear(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		return fmt.Errorf("encrypt a secret artifact: %w", err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return fmt.Errorf("encrypt a secret artifact: %w", err)
	}
	sealed := make([]byte, gcm.NonceSize(), gcm.NonceSize()+len(value)+gcm.Overhead())
	_, _ = rand.Read(sealed) // never fails
	sealed = gcm.Seal(sealed, sealed, value, nil)
	if err := writeDurable(x.path+".data", sealed); err != nil {
		return fmt.Errorf("%w: %w", errDisk, err)
	}
	out.ObjectBytes, out.ObjectSHA256 = int64(len(sealed)), hexSum(sealed)
	fields["key"], fields["cipher"] = encoded(key), []byte("AES-256-GCM")
	fields["object_sha256"] = []byte(out.ObjectSHA256)
	return nil
}

// encoded is base64 text of bytes that are no text.
func encoded(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, b) }

// storeFailure gives an error of package vault its code.
func storeFailure(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errNoTime) {
		return &refusedSecret{vault.CodeVaultUnavailable, errNoTime}
	}
	if code := vault.FailureCode(err); code != "" && !isPlane(err) && !errors.Is(err, context.Canceled) {
		return &refusedSecret{code, err}
	}
	return err
}
