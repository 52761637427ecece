package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/policy"
)

// Reasons of a release before start.
const (
	releaseDeclined = "declined"
	releaseDraining = "draining"
	releasePolicy   = "policy_unavailable"
)

// accept takes an offer as far as an acknowledged start. Nothing has a side
// effect before that. It returns false where there is nothing more to do.
func (at *attempt) accept() bool {
	reason, err := at.prepare()
	if err != nil {
		at.log.Warn("the offer is given back", "reason", reason, "error", err)
		at.release(reason)
		return false
	}
	switch {
	case at.agent.draining():
		at.release(releaseDraining)
		return false
	case !at.wanted():
		return false // stopped or gone: the service has ended the offer itself
	}
	return at.start()
}

// prepare does all that can fail without a trace: folder, JobSpec, executor,
// isolation, policy bundle, spool.
func (at *attempt) prepare() (reason string, err error) {
	if err := os.MkdirAll(at.dir, 0o700); err != nil {
		return releaseDeclined, fmt.Errorf("make the attempt's folder: %w", err)
	}
	if err := at.update(func(*journal) {}); err != nil {
		return releaseDeclined, err
	}
	if at.specErr != nil {
		return releaseDeclined, fmt.Errorf("read the JobSpec: %w", at.specErr)
	}
	if _, ok := at.agent.config.Executors[at.spec.JobType]; !ok {
		return releaseDeclined, fmt.Errorf("no executor for job type %s here", at.spec.JobType)
	}
	if len(at.agent.config.isolationFor(at.offer.Isolation)) == 0 {
		return releaseDeclined, fmt.Errorf("isolation %s cannot be given here", at.offer.Isolation)
	}
	if err := at.fetchPolicy(); err != nil {
		return releasePolicy, err
	}
	if at.box, err = at.shutIn(); err != nil {
		return releaseDeclined, err
	}
	at.journal.Isolation = at.box.Level
	if err := at.startSending(); err != nil {
		return releaseDeclined, err
	}
	return "", nil
}

// fetchPolicy puts the bundle that the offer names into the attempt's folder. It
// tries for half of the offer's time.
func (at *attempt) fetchPolicy() error {
	digest := at.journal.PolicyDigest
	ctx, cancel := context.WithTimeout(at.working, time.Duration(at.offer.OfferSeconds)*time.Second/2)
	defer cancel()
	archive, err := at.agent.policyArchive(ctx, digest)
	if err != nil {
		return fmt.Errorf("get policy bundle %s: %w", digest, err)
	}
	mode := fs.FileMode(0o600)
	if at.agent.config.Credential != nil {
		mode = 0o644 // read by the executor's user; the folder keeps all others out
	}
	if err := os.WriteFile(at.policyPath(), archive, mode); err != nil {
		return fmt.Errorf("keep policy bundle %s: %w", digest, err)
	}
	return os.Chmod(at.policyPath(), mode)
}

// bundle opens the policy bundle that the offer named.
func (at *attempt) bundle() (*policy.Bundle, error) {
	archive, err := os.ReadFile(at.policyPath())
	if err != nil {
		return nil, fmt.Errorf("read the policy bundle: %w", err)
	}
	return policy.Open(archive)
}

func (at *attempt) policyPath() string { return filepath.Join(at.dir, "policy.tar") }

// policyArchive gives a bundle's archive from the cache or the service, checked
// against its digest.
func (a *Agent) policyArchive(ctx context.Context, digest string) ([]byte, error) {
	path := filepath.Join(a.policyDir(), digest+".tar")
	if !sha256Text(digest) {
		return nil, errors.New("its digest is not 64 hex digits")
	}
	if b, err := os.ReadFile(path); err == nil && checkPolicy(b, digest) == nil {
		return b, nil
	}
	var archive []byte
	err := insist(ctx, callTimeout, func(ctx context.Context) (err error) {
		archive, err = a.plane().PolicyBundle(ctx, digest)
		return err
	})
	if err == nil {
		err = checkPolicy(archive, digest)
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	a.caching.Lock() // two attempts may bring the same bundle
	defer a.caching.Unlock()
	return archive, writeDurable(path, archive)
}

// policyDir caches bundles by digest for this process's life.
func (a *Agent) policyDir() string { return filepath.Join(a.config.StateDir, "policy") }

func checkPolicy(archive []byte, digest string) error {
	b, err := policy.Open(archive)
	if err != nil {
		return err
	}
	if b.Digest() != digest {
		return fmt.Errorf("it has digest %s", b.Digest())
	}
	return nil
}

func sha256Text(s string) bool {
	return len(s) == 64 && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// start asks for the right to have side effects. Its answer may be lost and the
// lease live all the same, so it is repeated until an answer comes or the lease
// would be dead; the fence counts from the first send.
func (at *attempt) start() bool {
	if err := at.update(func(j *journal) { j.Phase = phaseStarting }); err != nil {
		at.log.Error("the offer is given back", "error", err)
		at.release(releaseDeclined)
		return false
	}
	key := uuid.New()
	at.mu.Lock()
	at.fenceAt = at.clock().Add(at.agent.fence())
	at.mu.Unlock()
	// An answer that never comes must leave time to ask again before the fence.
	err := insist(at.working, min(callTimeout, at.agent.fence()/3), func(ctx context.Context) error {
		_, err := at.agent.plane().Start(ctx, at.lease, key, wire.StartRequest{Isolation: at.journal.Isolation})
		return err
	})
	if err != nil {
		at.log.Info("the attempt is not started", "error", err)
		if domain.KindOf(err) == domain.KindInvalid || domain.KindOf(err) == domain.KindMalformed {
			at.release(releaseDeclined)
		}
		return false
	}
	if err := at.update(func(j *journal) { j.Phase = phaseStarted }); err != nil {
		at.failStorage(err)
	}
	at.mu.Lock()
	at.held = true
	at.mu.Unlock()
	at.note("started", map[string]any{"isolation": at.journal.Isolation, "runner": at.agent.config.Name, "version": at.agent.config.Version})
	return true
}

// release gives the offer back. It matters only for speed: the offer runs out
// by itself, so it is tried for as long as the offer may live.
func (at *attempt) release(reason string) {
	at.unfence()
	ctx, cancel := context.WithTimeout(at.working, time.Duration(at.journal.Clocks.OfferSeconds)*time.Second)
	defer cancel()
	key := uuid.New()
	err := insist(ctx, callTimeout, func(ctx context.Context) error {
		return at.agent.plane().Release(ctx, at.lease, key, wire.ReleaseRequest{Reason: reason})
	})
	if err != nil {
		at.log.Info("the offer was not given back; it runs out by itself", "error", err)
	}
}
