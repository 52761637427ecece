package api

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/platform-core/execution-plane-service/api/wire"
	"github.com/platform-core/execution-plane-service/artifacts"
	"github.com/platform-core/execution-plane-service/bundle"
	"github.com/platform-core/execution-plane-service/domain"
	"github.com/platform-core/execution-plane-service/projections"
)

// pathText is a free text of the path.
func (q *request) pathText(name string) (string, error) {
	text, err := url.PathUnescape(pathValue(q.Request, name))
	if err != nil || text == "" || len(text) > maxPathText || !printable(text) {
		return "", malformed("invalid_name", "the "+name+" in the path is empty, too long, not UTF-8, or holds control characters", "write it percent-encoded")
	}
	return text, nil
}

const maxPathText = 200 // bytes

// putArtifact takes a file for the jobs of an operation.
func (s *server) putArtifact(q *request) error {
	op, err := pathID[domain.OperationID](q)
	if err != nil {
		return err
	}
	name, err := q.pathText("name")
	if err != nil {
		return err
	}
	a := artifacts.OperationArtifact{OperationID: op, Name: name, Sensitivity: q.query.text("sensitivity")}
	switch a.Sensitivity {
	case "":
		a.Sensitivity = "internal"
	case "public", "internal", domain.SensitivitySecret: // the last one is refused with its reason
	default:
		return malformed("query_value", "the query parameter sensitivity is public or internal", "")
	}
	is, made, err := s.Inputs.Put(q.Context(), a, q.upload)
	if err != nil {
		return err
	}
	return q.json(createdIf(made), wire.PutArtifact{ArtifactID: is.ID, Name: is.Name, SHA256: is.SHA256, Bytes: is.Bytes, URI: is.URI, Sensitivity: is.Sensitivity, MediaType: is.MediaType})
}

func createdIf(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}

func (s *server) listPutArtifacts(q *request) error {
	op, err := pathID[domain.OperationID](q)
	if err != nil {
		return err
	}
	views, err := s.Reads.PutArtifacts(q.Context(), op)
	if err != nil {
		return err
	}
	out := wire.Page[wire.OperationArtifact]{Items: []wire.OperationArtifact{}}
	for _, v := range views {
		out.Items = append(out.Items, putArtifactOf(v))
	}
	return q.json(http.StatusOK, out)
}

func putArtifactOf(v projections.StoredInput) wire.OperationArtifact {
	return wire.OperationArtifact{PutArtifact: wire.PutArtifact{ArtifactID: domain.NewID[domain.ArtifactID](v.ArtifactID), Name: v.Name, SHA256: v.SHA256, Bytes: v.Bytes, URI: v.URI,
		Sensitivity: v.Sensitivity, MediaType: deref(v.MediaType)}, CreatedAt: v.CreatedAt.UTC()}
}

// getInput leads a runner to an input of its attempt.
func (s *server) getInput(q *request) error {
	name, err := q.pathText("name")
	if err != nil {
		return err
	}
	at, err := s.Inputs.Locate(q.Context(), q.lease, name)
	if err != nil {
		return err
	}
	return q.located(at)
}

// getArtifact leads to the bytes of an artifact.
func (s *server) getArtifact(q *request) error {
	id, err := parseID[domain.ArtifactID]("the artifact's id", pathValue(q.Request, "artifact"))
	if err != nil {
		return err
	}
	at, err := s.Inputs.Download(q.Context(), id)
	if err != nil {
		return err
	}
	return q.located(at)
}

// located leads to bytes. The link is good for some minutes, for whoever has it.
func (q *request) located(at artifacts.Located) error {
	h := q.w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set(wire.HeaderContentSHA256, at.SHA256)
	if at.Bytes >= 0 {
		h.Set(wire.HeaderBytes, strconv.FormatInt(at.Bytes, 10))
	}
	h.Set("Location", at.URL)
	q.w.WriteHeader(http.StatusTemporaryRedirect)
	return nil
}

func packageDigest(q *request) (bundle.SHA256, error) {
	v := pathValue(q.Request, "digest")
	sum, err := bundle.ParseSHA256(v)
	if err != nil {
		return sum, malformed("invalid_digest", quote(v)+" is not a digest of 64 lower-case hex digits", "")
	}
	return sum, nil
}

// pushPackage takes a package of playbooks under its digest.
func (s *server) pushPackage(q *request) error {
	sum, err := packageDigest(q)
	if err != nil {
		return err
	}
	if said := q.upload.SHA256; !said.IsZero() && said != sum {
		return malformed("invalid_digest", "the header Content-SHA256 is not the digest in the path", "leave the header out")
	}
	q.upload.SHA256 = sum
	is, first, err := s.Packages.Push(q.Context(), q.upload)
	if err != nil {
		return err
	}
	return q.json(createdIf(first), wire.Package{SHA256: is.SHA256, Name: is.Name, Version: is.Version, Bytes: is.Bytes})
}

func (s *server) listPackages(q *request) error {
	views, err := s.Reads.Packages(q.Context())
	if err != nil {
		return err
	}
	out := wire.Page[wire.StoredPackage]{Items: []wire.StoredPackage{}}
	for _, v := range views {
		out.Items = append(out.Items, wire.StoredPackage{Package: wire.Package{SHA256: v.SHA256, Name: v.Name, Version: deref(v.Version), Bytes: v.Bytes}, PushedAt: v.PushedAt.UTC()})
	}
	return q.json(http.StatusOK, out)
}

func (s *server) getPackage(q *request) error {
	sum, err := packageDigest(q)
	if err != nil {
		return err
	}
	at, err := s.Packages.Locate(q.Context(), sum)
	if err != nil {
		return err
	}
	return q.located(at)
}
