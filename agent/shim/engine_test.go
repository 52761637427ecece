package shim

import (
	"os"
	"testing"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// An engine that is lost between the executor's start and the word of it leaves
// nobody who knows what the executor did: it counts as started.
func TestEngineLostAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		applied bool
		started bool
	}{
		"before the executor's start": {false, false},
		"after it":                    {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			reports, quiet := make(chan insidePacket, 1), make(chan struct{})
			if tc.applied {
				reports <- insidePacket{insideReport{entryReport: entryReport{Applied: &isolation.Applied{Level: isolation.LevelSandbox}}}, os.Getpid()}
			}
			close(reports)
			close(quiet)
			l := launched{inside: &insideView{reports: reports, words: &words{ended: quiet}}}
			wanted := attendant{unwanted: func() *unwanted { return nil }}
			if err := l.awaitRunning(wanted); (err == nil) != tc.started {
				t.Errorf("%v", err)
			}
			if got := l.inside.processes(); len(got) != 0 {
				t.Errorf("%d processes inside of what is gone", len(got))
			}
		})
	}
}
