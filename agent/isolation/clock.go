package isolation

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// BootTime is a moment on CLOCK_BOOTTIME, in nanoseconds since boot. It goes
// on while the machine sleeps and never jumps with the wall clock, and it is
// the same in every process of the machine, so a deadline can be handed over.
type BootTime int64

// BootNow reads CLOCK_BOOTTIME.
func BootNow() BootTime {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The clock exists since Linux 2.6.39; without it no deadline can be kept.
		panic(fmt.Sprintf("read CLOCK_BOOTTIME: %v", err))
	}
	return BootTime(ts.Nano())
}

// Add returns the moment d later.
func (t BootTime) Add(d time.Duration) BootTime { return t + BootTime(d) }

// Sub returns the time from u to t.
func (t BootTime) Sub(u BootTime) time.Duration { return time.Duration(t - u) }

// BootID names this boot of the machine. Process identities are only valid
// under the boot in which they were read.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Alarm is a timer on CLOCK_BOOTTIME: it also goes off right after a resume
// when the moment passed while the machine slept.
type Alarm struct {
	// C receives once per moment reached.
	C    <-chan struct{}
	file *os.File
	done chan struct{}
}

// NewAlarm makes an alarm that is not set. Close it after use.
func NewAlarm() (*Alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a boot-time timer: %w", err)
	}
	c := make(chan struct{}, 1)
	a := &Alarm{C: c, file: os.NewFile(uintptr(fd), "timerfd"), done: make(chan struct{})}
	go a.run(c)
	return a, nil
}

func (a *Alarm) run(c chan<- struct{}) {
	defer close(a.done)
	var buf [8]byte
	for {
		if _, err := a.file.Read(buf[:]); err != nil {
			return
		}
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Set makes the alarm go off at t, at once if t is past. It replaces an
// earlier setting; zero clears it.
func (a *Alarm) Set(t BootTime) error {
	spec := unix.ItimerSpec{}
	if t != 0 {
		spec.Value = unix.NsecToTimespec(max(int64(t), 1))
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set the boot-time timer: %w", err)
	}
	var serr error
	if err := raw.Control(func(fd uintptr) {
		serr = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	}); err != nil {
		return fmt.Errorf("set the boot-time timer: %w", err)
	}
	if serr != nil {
		return fmt.Errorf("set the boot-time timer: %w", serr)
	}
	return nil
}

// Close ends the alarm and its goroutine.
func (a *Alarm) Close() {
	a.file.Close()
	<-a.done
}
