package shim

import (
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/platform-core/execution-plane-service/agent/isolation"
)

// What a launch that nobody wants any more comes to, by what is heard before and after
// the first kill.
func TestEndOfAnUnwantedLaunch(t *testing.T) {
	applied := insideReport{entryReport: entryReport{Applied: &isolation.Applied{Level: isolation.LevelSandbox}}}
	refused, running := insideReport{entryReport: entryReport{Error: "refused"}}, insideReport{Running: true}
	const patience, unwantedAfter = 5 * time.Second, time.Second
	type heard struct {
		after  time.Duration
		report *insideReport // nil: the end
	}
	for name, tc := range map[string]struct {
		unwanted bool
		budget   time.Duration // of the ladder
		comes    []heard
		started  bool
		kills    bool
		takes    time.Duration // and less than a second more
	}{
		"nothing was heard":               {true, time.Minute, []heard{{3 * time.Second, nil}}, false, true, 3 * time.Second},
		"the last word came after a kill": {true, time.Minute, []heard{{2 * time.Second, &applied}, {time.Second, nil}}, true, true, 3 * time.Second},
		"it was refused after a kill":     {true, time.Minute, []heard{{2 * time.Second, &applied}, {0, &refused}, {time.Second, nil}}, false, true, 2 * time.Second},
		"it ran before the kill took it":  {true, time.Minute, []heard{{2 * time.Second, &applied}, {0, &running}, {time.Second, nil}}, true, true, 2 * time.Second},
		"it ran by then":                  {true, time.Minute, []heard{{900 * time.Millisecond, &applied}, {500 * time.Millisecond, &running}}, true, false, 1400 * time.Millisecond},
		"it hangs at its start":           {true, time.Minute, []heard{{900 * time.Millisecond, &applied}, {2 * time.Second, nil}}, true, true, 2900 * time.Millisecond},
		"it hangs, and none waits for it": {true, 0, []heard{{900 * time.Millisecond, &applied}, {500 * time.Millisecond, &running}}, true, true, 1400 * time.Millisecond},
		"somebody cannot be killed":       {true, time.Minute, []heard{{time.Minute, nil}}, true, true, unwantedAfter + patience},
		"it is late":                      {false, 0, []heard{{launchTimeout + time.Second, nil}}, false, true, launchTimeout + time.Second},
		"it is late and hangs":            {false, 0, []heard{{time.Second, &applied}, {launchTimeout, nil}}, true, true, launchTimeout + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reports, quiet, said := make(chan insidePacket, 8), make(chan struct{}), make(chan struct{})
				close(quiet)
				go func() {
					defer close(said)
					for _, h := range tc.comes {
						time.Sleep(h.after)
						if h.report == nil {
							close(reports)
							return
						}
						reports <- insidePacket{*h.report, os.Getpid()}
					}
				}()
				began, kills := time.Now(), 0
				by := attendant{patience: patience, kill: func() { kills++ }, unwanted: func() *unwanted {
					if !tc.unwanted || time.Since(began) < unwantedAfter {
						return nil
					}
					return &unwanted{text: "stopped", reason: ReasonStop, ladder: Ladder{{Wait: tc.budget}}}
				}}
				l := launched{inside: &insideView{reports: reports, words: &words{ended: quiet}}}
				err := l.awaitRunning(by)
				if (err == nil) != tc.started || (kills > 0) != tc.kills || (l.unwanted != nil) != tc.unwanted {
					t.Errorf("error %v, %d kills, unwanted %+v", err, kills, l.unwanted)
				}
				if took := time.Since(began); took < tc.takes || took >= tc.takes+time.Second {
					t.Errorf("it took %v, want %v", took, tc.takes)
				}
				<-said
			})
		})
	}
}
