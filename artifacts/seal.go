package artifacts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/eventstore"
	"github.com/platform-core/execution-plane-service/internal/broken"
	"github.com/platform-core/execution-plane-service/internal/crashpoint"
)

// sealing builds one attempt's bundle. It may be done again after a clash: what
// was put under a digest stays right.
type sealing struct {
	ctx     context.Context
	w       *Sealer
	objects Objects
	a       domain.Attempt
	prefix  string
	events  []stored
	created domain.Created
	end     *domain.Completed
	m       bundle.Manifest
	buf     []byte // the chunk that is being read back
}

// build puts what is missing of the bundle into object storage and returns the
// manifest's bytes and the event that names it.
func (w *Sealer) build(ctx context.Context, a domain.Attempt) (s *sealing, manifest []byte, out domain.Sealed, err error) {
	s = &sealing{ctx: ctx, w: w, objects: w.objects(), a: a, prefix: prefixOf(a)}
	if s.events, err = readStream(ctx, w.Store, a.ID); err != nil {
		return s, nil, out, err
	}
	for _, step := range []func() error{s.collect, s.sumLogs, s.findGaps, s.putJobSpec, s.putEnvironment, s.putEvents} {
		if err := step(); err != nil {
			return s, nil, out, err
		}
	}
	if len(s.m.Gaps) > 0 {
		s.m.State = bundle.Incomplete
	}
	manifest, out, err = s.putManifest()
	return s, manifest, out, err
}

// collect lists the chunks and artifacts that the stream names.
func (s *sealing) collect() error {
	for _, e := range s.events {
		switch d := e.Event.(type) {
		case domain.Created:
			s.created = d
		case domain.Completed:
			s.end = &d
		}
	}
	var err error
	if s.m, err = domain.ManifestHead(s.created); err != nil {
		return err
	}
	s.m.Objects, err = domain.StoredObjects(factsOf(s.events))
	return err
}

// sumLogs reads every chunk back, so that the manifest's digests are of what is
// stored and not of what was claimed.
func (s *sealing) sumLogs() error {
	for _, stream := range bundle.Streams() {
		h := sha256.New()
		l := bundle.Log{Stream: stream}
		for _, o := range s.m.Objects {
			if o.Log == nil || o.Log.Stream != stream {
				continue
			}
			content, err := s.chunk(o)
			if err != nil {
				return err
			}
			h.Write(content)
			l.Bytes += o.Log.Length
			l.Chunks++
		}
		declared := s.declared(stream)
		if l.Chunks == 0 && declared == nil && s.a.Completed {
			continue
		}
		h.Sum(l.SHA256[:0])
		if broken.On("seal_without_readback") && declared != nil {
			l.SHA256, _ = bundle.ParseSHA256(declared.SHA256)
		}
		l.Complete = s.a.Completed && (declared == nil || declared.Bytes == l.Bytes && declared.SHA256 == l.SHA256.String())
		if !l.Complete {
			g := bundle.Gap{Kind: bundle.KindLog, Name: string(stream), From: l.Bytes, To: l.Bytes, Reason: s.reason()}
			if declared != nil {
				g.To = max(declared.Bytes, l.Bytes)
				if declared.Bytes <= l.Bytes {
					g.From, g.Reason = 0, "digest_differs"
				}
			}
			l.SHA256 = bundle.SHA256{}
			s.m.Gaps = append(s.m.Gaps, g)
		}
		s.m.Logs = append(s.m.Logs, l)
	}
	return nil
}

// chunk reads a chunk's content back; valid until the next one.
func (s *sealing) chunk(o bundle.Object) ([]byte, error) {
	if o.Bytes > int64(cap(s.buf)) {
		s.buf = make([]byte, min(max(0, o.Bytes), bundle.MaxChunkEncoded))
	}
	b := s.buf[:min(max(0, o.Bytes), bundle.MaxChunkEncoded)]
	if err := readInto(s.ctx, s.objects, o.Key, b); err != nil {
		return nil, err
	}
	if bundle.Sum(b) != o.SHA256 {
		return nil, fmt.Errorf("log chunk %s does not have the digest that the ledger names; restore it from a copy of the bucket", o.Key)
	}
	return bundle.ChunkContent(o.Log.Stream, o.Log.Offset, b)
}

func (s *sealing) declared(stream bundle.Stream) *domain.ClaimedLog {
	if s.end == nil {
		return nil
	}
	for i, l := range s.end.Claim.Logs {
		if l.Stream == string(stream) {
			return &s.end.Claim.Logs[i]
		}
	}
	return nil
}

// reason says why bytes are missing.
func (s *sealing) reason() string {
	if s.a.Completed {
		return "upload_lease_expired"
	}
	return "runner_lost"
}

// findGaps names artifacts that were announced and never came.
func (s *sealing) findGaps() error {
	for n := s.a.Artifacts; n < s.a.DeclaredArtifacts; n++ {
		s.m.Gaps = append(s.m.Gaps, bundle.Gap{Kind: bundle.KindArtifact, Name: fmt.Sprintf("unregistered-%d", n+1), Reason: s.reason()})
	}
	return nil
}

func (s *sealing) putJobSpec() error {
	raw, err := text(s.ctx, s.w.Store, s.created.SpecText)
	if err != nil {
		return fmt.Errorf("read the accepted JobSpec of %s: %w", s.a.ID, err)
	}
	return s.put(raw, bundle.Object{Name: "job_spec.json", Kind: bundle.KindJobSpec, Type: "job_spec", MediaType: "application/json"},
		func(sum bundle.SHA256) string { return bundle.JobSpecKey(s.prefix, sum) })
}

// environment is what the attempt ran with; see docs/runner-agent.md for the
// runner's part.
type environment struct {
	Runner       json.RawMessage     `json:"runner"` // as the agent reported; null if it never did
	Isolation    string              `json:"isolation"`
	PolicyDigest string              `json:"policy_digest"`
	Clocks       domain.Clocks       `json:"clocks"`
	Secrets      []environmentSecret `json:"secrets"`
	StartedAt    *time.Time          `json:"started_at"`
}

// environmentSecret is a reference, and what was read by it: which version, of
// which kind of engine, under which rule of the policy. Read is null where the
// runner did not come that far.
type environmentSecret struct {
	domain.SecretInput
	Read *environmentRead `json:"read"`
}

type environmentRead struct {
	Reference string `json:"reference"`
	Version   int    `json:"version,omitempty"`
	Engine    string `json:"engine"`
	Mapping   string `json:"mapping"`
	Unmasked  bool   `json:"unmasked,omitempty"`
}

func (s *sealing) putEnvironment() error {
	e := environment{PolicyDigest: s.a.PolicyDigest, Clocks: s.a.Clocks, Secrets: []environmentSecret{}, StartedAt: s.a.StartedAt}
	for _, in := range s.created.Secrets {
		e.Secrets = append(e.Secrets, environmentSecret{SecretInput: in})
	}
	for _, x := range s.events {
		switch d := x.Event.(type) {
		case domain.Started:
			e.Isolation = d.Isolation
		case domain.SecretResolved:
			if d.Index >= 0 && d.Index < len(e.Secrets) {
				e.Secrets[d.Index].Read = &environmentRead{Reference: d.Reference, Version: d.Version, Engine: d.Engine, Mapping: d.Mapping, Unmasked: d.Unmasked}
			}
		}
	}
	if s.end != nil {
		raw, err := text(s.ctx, s.w.Store, s.end.Environment)
		if err != nil {
			return fmt.Errorf("read the environment of %s: %w", s.a.ID, err)
		}
		if len(raw) > 0 {
			e.Runner = raw
		}
	}
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the environment of %s: %w", s.a.ID, err)
	}
	return s.put(b, bundle.Object{Name: "environment.json", Kind: bundle.KindEnvironment, Type: "environment", MediaType: "application/json"},
		func(sum bundle.SHA256) string { return bundle.EnvironmentKey(s.prefix, sum) })
}

func (s *sealing) putEvents() error {
	var b []byte
	var err error
	for _, e := range s.events {
		if b, err = eventstore.AppendLine(b, e.Raw); err != nil {
			return err
		}
	}
	return s.put(b, bundle.Object{Name: "events.jsonl", Kind: bundle.KindEvents, Type: "event_stream", MediaType: "application/jsonl"},
		func(sum bundle.SHA256) string { return bundle.EventsKey(s.prefix, sum) })
}

// put stores an object of the service's own and lists it.
func (s *sealing) put(b []byte, o bundle.Object, key func(bundle.SHA256) string) error {
	o.SHA256, o.Bytes = bundle.Sum(b), int64(len(b))
	o.Key, o.Sensitivity, o.ProducedBy = key(o.SHA256), bundle.Internal, "service"
	if err := s.objects.Put(s.ctx, o.Key, bytes.NewReader(b), o.Bytes, o.SHA256, objects.PutOptions{ContentType: o.MediaType}); err != nil {
		return storageError("store "+o.Name, err)
	}
	crashpoint.Here("seal.put")
	s.m.Objects = append(s.m.Objects, o)
	return nil
}

func (s *sealing) putManifest() ([]byte, domain.Sealed, error) {
	b, err := s.m.Encode()
	if err != nil {
		return nil, domain.Sealed{}, fmt.Errorf("bundle of %s: %w", s.a.ID, err)
	}
	sum := bundle.Sum(b)
	key := bundle.ManifestKey(s.prefix, sum)
	if err := s.objects.Put(s.ctx, key, bytes.NewReader(b), int64(len(b)), sum, objects.PutOptions{ContentType: "application/json"}); err != nil {
		return nil, domain.Sealed{}, storageError("store the manifest", err)
	}
	crashpoint.Here("seal.manifest")
	out, err := domain.SealedOf(s.a.StorageBase, s.m)
	// Where it was put just now, should the bucket have another name since the attempt was created.
	out.URI = s.w.Objects.URI(key)
	return b, out, err
}
