package vault_test

import (
	"testing"

	"github.com/platform-core/execution-plane-service/internal/proctest"
)

func TestMain(m *testing.M) { proctest.Main(m) }
