package artifacts

import (
	"context"
	"fmt"

	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// VaultPlace is where the runner stored a secret artifact. Bytes of the announcement
// is its size in clear.
type VaultPlace struct {
	Reference  string // vault://<mount>/<path>?version=n
	HMACSHA256 string // hex, of the bytes in clear; its key lies in Vault
	// Of one that is too large for Vault: the object that holds it encrypted.
	ObjectBytes  int64
	ObjectSHA256 string // hex; "" where there is no object
}

// maxInVault is the largest secret artifact that Vault holds itself, in bytes.
const maxInVault = 512 << 10

// checkSecret says what is wrong with the announcement of a secret artifact. It
// repeats no text of it.
func (n *Announcement) checkSecret(add func(pointer, message string)) {
	if n.Sensitivity != domain.SensitivitySecret {
		add("/sensitivity", "is secret for what is stored in Vault")
	}
	if n.Inline != nil {
		add("/inline", "is not for secret artifacts")
	}
	if n.SHA256 != "" {
		add("/sha256", "is not for secret artifacts: the digest of a secret lets it be guessed")
	}
	if n.Bytes < 0 || n.Bytes > maxArtifact {
		add("/bytes", "is the size in clear, at most 5 GiB")
	}
	v := n.Vault
	if v == nil {
		add("/vault", "is required: a secret artifact is stored in Vault, never here")
		return
	}
	if ref, err := policy.ParseSecretReference(v.Reference); err != nil {
		add("/vault/reference", "is no reference vault://<mount>/<path>?version=n: "+err.Error())
	} else if ref.Version == 0 || ref.Field != "" {
		add("/vault/reference", "names the version that was written, and no field")
	}
	if _, err := bundle.ParseSHA256(v.HMACSHA256); err != nil {
		add("/vault/hmac_sha256", "is 64 lower-case hex digits")
	}
	if v.ObjectSHA256 == "" && v.ObjectBytes == 0 {
		if n.Bytes > maxInVault {
			add("/bytes", "is at most 512 KiB in Vault; encrypt a larger one into an object")
		}
		return
	}
	if v.ObjectBytes != n.Bytes+domain.SealedOverhead {
		add("/vault/object_bytes", fmt.Sprintf("is bytes + %d: a nonce of 12 bytes, the ciphertext of AES-256-GCM and its tag", domain.SealedOverhead))
	}
	if _, err := bundle.ParseSHA256(v.ObjectSHA256); err != nil {
		add("/vault/object_sha256", "is 64 lower-case hex digits")
	}
}

// announceSecret registers what lies in Vault, where policy lets the attempt store
// it. A large one lies encrypted in an object, which is looked for as any other is.
func (i *Intake) announceSecret(ctx context.Context, m commands.Meta, call commands.LeaseCall, a domain.Attempt, n Announcement) (Announced, error) {
	if err := i.mayStore(ctx, a, n); err != nil {
		return Announced{}, err
	}
	id := domain.ArtifactIDOf(a.ID, n.Name)
	e := domain.ArtifactCreated{Name: n.Name, Type: n.Type, Output: n.Output, Sensitivity: n.Sensitivity, MediaType: n.MediaType,
		Bytes: n.Bytes, SHA256: n.Vault.HMACSHA256, Storage: domain.StorageVault, URI: n.Vault.Reference}
	if n.Vault.ObjectSHA256 == "" {
		return Announced{ID: id, Stored: true}, i.Commands.RegisterArtifact(ctx, m, call, e)
	}
	sum, err := bundle.ParseSHA256(n.Vault.ObjectSHA256)
	if err != nil {
		return Announced{}, err
	}
	e.Key = n.key(a, sum)
	return i.registerStored(ctx, m, call, id, e, n.Vault.ObjectBytes, sum)
}

// mayStore asks the bundle that the attempt's offer named; the active one where that
// bundle is not kept.
func (i *Intake) mayStore(ctx context.Context, a domain.Attempt, n Announcement) error {
	b := i.Commands.Policy()
	if a.PolicyDigest != b.Digest() && i.Policies != nil {
		switch named, err := i.Policies.Bundle(ctx, a.PolicyDigest); {
		case err == nil:
			b = named
		case domain.KindOf(err) != domain.KindNotFound:
			return fmt.Errorf("read the policy bundle of %s: %w", a.ID, err)
		}
	}
	c, err := i.Commands.Created(ctx, a.ID)
	if err != nil {
		return err
	}
	ref, err := policy.ParseSecretReference(n.Vault.Reference)
	if err != nil {
		return fmt.Errorf("read the reference of a secret artifact: %w", err)
	}
	v := b.DecideStore(policy.StoreInput{Action: c.Action, JobType: c.JobType, Environment: c.Environment,
		OperationID: c.OperationID.String(), AttemptID: a.ID.String(), Artifact: n.Name})
	ref.Version = 0
	if v.Allow && ref.String() == v.Reference {
		return nil
	}
	refused := errStore.With("bundle_digest", v.BundleDigest)
	if len(v.Reasons) > 0 {
		refused = refused.With("reason", v.Reasons[0].Code)
	}
	return refused
}

var errStore = &domain.Error{Kind: domain.KindForbidden, Code: policy.CodeSecretStoreNotAllowed,
	Message: "policy gives this artifact no such place in Vault", Next: "store it where the secret mapping of the offer's policy bundle says"}
