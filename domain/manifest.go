package domain

import (
	"fmt"
	"strings"

	"github.com/platform-core/execution-plane-service/bundle"
)

// StorageVault is the storage of a secret artifact: its URI is a Vault reference.
const StorageVault = "vault"

// The reasons for which an operator's manifest names something as a gap.
const (
	// GapSealedByOperator: it was announced, or belongs to every bundle, and was
	// not there when an operator sealed.
	GapSealedByOperator = "sealed_by_operator"
	// GapNotReadBack: all of a log is named, and nobody read it back.
	GapNotReadBack = "not_read_back"
)

// EmptyManifest is the manifest of an attempt that never ran.
func EmptyManifest(a AttemptID, op OperationID, node, specDigest string, code FailureCode) (bundle.Manifest, error) {
	spec, err := bundle.ParseSHA256(specDigest)
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("empty bundle of %s: %w", a, err)
	}
	return bundle.EmptyManifest(a.UUID(), op.UUID(), node, spec, string(code)), nil
}

// ManifestHead is a manifest of an attempt that lists nothing yet.
func ManifestHead(c Created) (bundle.Manifest, error) {
	spec, err := bundle.ParseSHA256(c.SpecDigest)
	if err != nil {
		return bundle.Manifest{}, fmt.Errorf("bundle of %s: %w", c.AttemptID, err)
	}
	return bundle.Manifest{
		Schema: bundle.ManifestSchema, BundleID: bundle.BundleID(c.AttemptID.UUID()), AttemptID: c.AttemptID.UUID(),
		OperationID: c.OperationID.UUID(), PlanNodeID: c.PlanNodeID, JobSpecSHA256: spec, State: bundle.Complete,
	}, nil
}

// StoredObjects lists the log chunks and artifacts that a stream names, in its
// order. Inline artifacts are none: their bytes stand in the event.
func StoredObjects(stream []Fact) ([]bundle.Object, error) {
	var out []bundle.Object
	runner := map[int64]string{} // by epoch
	for _, f := range stream {
		var o bundle.Object
		var sum string
		switch e := f.Event.(type) {
		case Leased:
			runner[e.Epoch] = "runner/" + e.RunnerID.String()
			continue
		case LogStored:
			sum = e.SHA256
			o = bundle.Object{Name: e.Stream, Key: e.Key, Kind: bundle.KindLog, Type: "log_frames", Sensitivity: bundle.Internal,
				Bytes: e.ObjectBytes, MediaType: "application/octet-stream", ProducedBy: runner[e.Epoch],
				Log: &bundle.LogPart{Stream: bundle.Stream(e.Stream), Offset: e.Offset, Length: e.Bytes}}
		case ArtifactCreated:
			if e.Key == "" {
				continue
			}
			var size int64
			sum, size = e.StoredObject()
			o = bundle.Object{Name: e.Name, Key: e.Key, Kind: bundle.KindArtifact, Type: e.Type, Sensitivity: bundle.Sensitivity(e.Sensitivity),
				Bytes: size, MediaType: e.MediaType, ProducedBy: runner[e.Epoch]}
			if e.Output {
				o.Kind = bundle.KindOutput
			}
		default:
			continue
		}
		var err error
		if o.SHA256, err = bundle.ParseSHA256(sum); err != nil {
			return nil, fmt.Errorf("object %s: %w", o.Key, err)
		}
		out = append(out, o)
	}
	return out, nil
}

// SealedOverhead is by how many bytes the encrypted object of a secret artifact is
// larger than what it holds: a nonce of 12 bytes before it and a tag of 16 behind
// it, of AES-256-GCM.
const SealedOverhead = 28

// StoredObject is the digest and size of an artifact's object in object storage,
// for one that has a key. Of a secret artifact the event names what it is in clear,
// by a keyed digest; the object is its encryption, whose digest ends the key.
func (e ArtifactCreated) StoredObject() (sha256 string, bytes int64) {
	if e.Storage != StorageVault {
		return e.SHA256, e.Bytes
	}
	return e.Key[strings.LastIndexByte(e.Key, '/')+1:], e.Bytes + SealedOverhead
}

// UnverifiedManifest is the manifest of an attempt that an operator seals while
// object storage is away: a pure function of the stream before the order, so that
// its digest can stand in the ledger before any byte of it is stored. It names
// every object that the stream names, with the digest that the stream gives it,
// and a gap for everything else. Nothing was read back, so no log is called
// complete.
func UnverifiedManifest(stream []Fact) (bundle.Manifest, error) {
	stream = beforeSeal(stream)
	var end *Completed
	var m bundle.Manifest
	var err error
	artifacts := 0
	for _, f := range stream {
		switch e := f.Event.(type) {
		case Created:
			if m, err = ManifestHead(e); err != nil {
				return m, err
			}
		case Completed:
			end = &e
		case ArtifactCreated:
			artifacts++
		}
	}
	m.State, m.Unverified = bundle.Incomplete, true
	if m.Objects, err = StoredObjects(stream); err != nil {
		return m, err
	}
	for _, s := range bundle.Streams() {
		addUnverifiedLog(&m, s, end)
	}
	if end != nil {
		for n := artifacts; n < end.Claim.Artifacts; n++ {
			m.Gaps = append(m.Gaps, bundle.Gap{Kind: bundle.KindArtifact, Name: fmt.Sprintf("unregistered-%d", n+1), Reason: GapSealedByOperator})
		}
	}
	m.Gaps = append(m.Gaps,
		bundle.Gap{Kind: bundle.KindJobSpec, Name: "job_spec.json", Reason: GapSealedByOperator},
		bundle.Gap{Kind: bundle.KindEnvironment, Name: "environment.json", Reason: GapSealedByOperator},
		bundle.Gap{Kind: bundle.KindEvents, Name: "events.jsonl", Reason: GapSealedByOperator})
	return m, nil
}

// beforeSeal is the stream up to the events that seal it.
func beforeSeal(stream []Fact) []Fact {
	for i, f := range stream {
		switch f.Event.(type) {
		case SealForced, Sealed:
			return stream[:i]
		}
	}
	return stream
}

// addUnverifiedLog sums up what the objects hold of one log, and says what is not
// there. A log of which the runner said that it is empty has no gap and no entry.
func addUnverifiedLog(m *bundle.Manifest, s bundle.Stream, end *Completed) {
	l := bundle.Log{Stream: s}
	for _, o := range m.Objects {
		if o.Log != nil && o.Log.Stream == s {
			l.Bytes += o.Log.Length
			l.Chunks++
		}
	}
	declared := int64(-1)
	if end != nil {
		declared = 0
		for _, c := range end.Claim.Logs {
			if c.Stream == string(s) {
				declared = c.Bytes
			}
		}
	}
	if l.Bytes == 0 && declared == 0 {
		return
	}
	g := bundle.Gap{Kind: bundle.KindLog, Name: string(s), From: l.Bytes, To: max(declared, l.Bytes), Reason: GapSealedByOperator}
	if declared >= 0 && declared <= l.Bytes {
		g.From, g.Reason = 0, GapNotReadBack
	}
	m.Logs = append(m.Logs, l)
	m.Gaps = append(m.Gaps, g)
}

// SealedOf is the event that names a manifest which lies under the attempt's
// storage base.
func SealedOf(storageBase string, m bundle.Manifest) (Sealed, error) {
	digest, err := m.Digest()
	if err != nil {
		return Sealed{}, fmt.Errorf("digest the bundle of %s: %w", m.AttemptID, err)
	}
	out := Sealed{
		BundleID: m.BundleID.String(), State: string(m.State), ManifestSHA256: digest.String(),
		URI: storageBase + bundle.ManifestKey(m.Prefix(), digest), Objects: len(m.Objects), Gaps: len(m.Gaps),
	}
	for _, o := range m.Objects {
		out.Bytes += o.Bytes
	}
	for _, l := range m.Logs {
		sl := SealedLog{Stream: string(l.Stream), Bytes: l.Bytes, Complete: l.Complete, Chunks: l.Chunks}
		if l.Complete {
			sl.SHA256 = l.SHA256.String()
		}
		out.Logs = append(out.Logs, sl)
	}
	return out, nil
}
