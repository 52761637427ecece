package plane_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
