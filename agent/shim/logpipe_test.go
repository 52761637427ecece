package shim_test

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A process outside the tree got hold of the log, as a daemon would that the
// executor asked for something. It keeps the pipe open, silently or not.
func TestLogEndsWithTheTreeThoughSomebodyHoldsIt(t *testing.T) {
	for _, chatty := range []bool{false, true} {
		t.Run(fmt.Sprintf("chatty %v", chatty), func(t *testing.T) {
			dir := attemptDir(t)
			w := start(t, base(dir, sh(`echo ready; sleep 300`)...))
			w.says("ready")
			<-w.Started()
			pid, _, ok := w.Running()
			if !ok {
				t.Fatal("not running")
			}
			held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", pid), os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			var writers sync.WaitGroup
			if chatty {
				writers.Go(func() {
					for {
						if _, err := held.Write(bytes.Repeat([]byte("z"), 512)); err != nil {
							return
						}
					}
				})
			}
			if err := w.Stop(nil, "test"); err != nil {
				t.Fatal(err)
			}
			r := w.end()
			provedGone(t, dir, r)
			held.Close()
			writers.Wait()
		})
	}
}

func TestLastWordsAreRead(t *testing.T) {
	// Written just before the end, more than one read takes.
	dir := attemptDir(t)
	w := start(t, base(dir, sh(`head -c 60000 /dev/zero; printf end`)...))
	provedGone(t, dir, w.end())
	if out := w.stdout.String(); len(out) != 60003 || out[60000:] != "end" {
		t.Errorf("%d bytes", len(out))
	}
}
