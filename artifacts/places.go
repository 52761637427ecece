package artifacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/platform-core/execution-plane-service/artifacts/objects"
	"github.com/platform-core/execution-plane-service/commands"
	"github.com/platform-core/execution-plane-service/domain"
)

// ownInputs is the prefix of the service's own bucket under which jobs may name
// objects where nothing else is configured. Everything else in that bucket is named by
// the ledger and given out by its rules.
const ownInputs = "inputs/"

// InputPlaces are the buckets and prefixes whose objects jobs may name by s3://. All
// are on the service's own object storage, and read with its credentials.
type InputPlaces struct {
	buckets  map[string]*objects.Bucket
	prefixes map[string][]string // by bucket; "" is all of it
}

// OpenInputPlaces reads places such as s3://bucket/prefix/; none: ownInputs of the
// own bucket. In the own bucket a prefix must lie under ownInputs: what the service
// keeps there itself is not to be had by its key.
func OpenInputPlaces(own objects.Config, places []string) (*InputPlaces, error) {
	if len(places) == 0 {
		places = []string{"s3://" + own.Bucket + "/" + ownInputs}
	}
	p := &InputPlaces{buckets: map[string]*objects.Bucket{}, prefixes: map[string][]string{}}
	for _, place := range places {
		rest, ok := strings.CutPrefix(place, "s3://")
		name, prefix, _ := strings.Cut(rest, "/")
		switch {
		case !ok || name == "":
			return nil, fmt.Errorf("the place of inputs %q is not s3://<bucket>/<prefix>", place)
		case prefix != "" && !strings.HasSuffix(prefix, "/"):
			return nil, fmt.Errorf("the place of inputs %q does not end with a slash, and would hold more than one folder", place)
		case name == own.Bucket && !strings.HasPrefix(prefix, ownInputs):
			return nil, fmt.Errorf("the place of inputs %q holds what the service keeps for itself; in its own bucket name s3://%s/%s or a folder below", place, own.Bucket, ownInputs)
		}
		if p.buckets[name] == nil {
			c := own
			c.Bucket = name
			b, err := objects.Open(c)
			if err != nil {
				p.Close()
				return nil, fmt.Errorf("open the place of inputs %q: %w", place, err)
			}
			p.buckets[name] = b
		}
		p.prefixes[name] = append(p.prefixes[name], prefix)
	}
	return p, nil
}

// Close drops idle connections.
func (p *InputPlaces) Close() {
	for _, b := range p.buckets {
		b.Close()
	}
}

// bucket is where a key that jobs may name lies.
func (p *InputPlaces) bucket(bucket, key string) (*objects.Bucket, error) {
	if p == nil || !domain.ValidObjectKey(key) || !slices.ContainsFunc(p.prefixes[bucket], func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		return nil, &domain.Error{Kind: domain.KindForbidden, Code: "input_place_refused", Message: "names an object where jobs may name none",
			Next: "store it in one of " + strings.Join(p.list(), ", ") + ", or have an operator add its place: execution-plane serve --input-place"}
	}
	return p.buckets[bucket], nil
}

func (p *InputPlaces) list() []string {
	if p == nil {
		return []string{"no place"}
	}
	var out []string
	for bucket, prefixes := range p.prefixes {
		for _, prefix := range prefixes {
			out = append(out, "s3://"+bucket+"/"+prefix)
		}
	}
	slices.Sort(out)
	return out
}

// LookAt describes an object that a JobSpec names.
func (p *InputPlaces) LookAt(ctx context.Context, bucket, key string) (commands.LookedAt, error) {
	b, err := p.bucket(bucket, key)
	if err != nil {
		return commands.LookedAt{}, err
	}
	info, err := b.Stat(ctx, key)
	switch {
	case errors.Is(err, objects.ErrNotFound), errors.Is(err, objects.ErrNoBucket):
		return commands.LookedAt{}, &domain.Error{Kind: domain.KindNotFound, Code: "input_unknown", Message: "there is no such object", Err: err}
	case err != nil:
		return commands.LookedAt{}, doesNotAnswer(err)
	}
	out := commands.LookedAt{Bytes: info.Size}
	if info.Verified {
		out.SHA256 = info.SHA256.String()
	}
	return out, nil
}
