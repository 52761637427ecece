package decide

import (
	"errors"
	"fmt"
	"os"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/policy"
)

// ErrNoBundle: the task names no policy bundle.
var ErrNoBundle = errors.New("the task names no policy bundle: nothing is done without one")

// OpenBundle reads the bundle that the offer named, as one archive or as a folder,
// and holds it to its digest.
func OpenBundle(file executor.PolicyFile) (*policy.Bundle, error) {
	if file.Path == "" {
		return nil, ErrNoBundle
	}
	info, err := os.Stat(file.Path)
	if err != nil {
		return nil, fmt.Errorf("finding the policy bundle: %w", err)
	}
	var bundle *policy.Bundle
	if info.IsDir() {
		bundle, err = policy.Load(os.DirFS(file.Path))
	} else {
		var data []byte
		if data, err = os.ReadFile(file.Path); err != nil {
			return nil, fmt.Errorf("reading the policy bundle: %w", err)
		}
		bundle, err = policy.Open(data)
	}
	if err != nil {
		return nil, fmt.Errorf("loading the policy bundle: %w", err)
	}
	if got := bundle.Digest(); got != file.Digest {
		return nil, fmt.Errorf("the policy bundle has digest %s and the task names %s", got, file.Digest)
	}
	return bundle, nil
}
