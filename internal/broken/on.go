//go:build broken

package broken

import (
	"os"
	"sync/atomic"

	"github.com/platform-core/execution-plane-service/domain"
)

var guard atomic.Value

func init() {
	Use(os.Getenv("EXECUTION_PLANE_BROKEN"))
	domain.Broken = On
}

// Use takes one guard out, and puts any other back; "" puts all back.
func Use(name string) { guard.Store(name) }

// On reports whether a guard is taken out.
func On(name string) bool { return guard.Load() == name }
