package ssh

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/platform-core/execution-plane-service/agent/executor"
	"github.com/platform-core/execution-plane-service/internal/sshtest"
	"github.com/platform-core/execution-plane-service/runners"
)

func TestRestart(t *testing.T) {
	t.Parallel()
	up := "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=1\nExecMainStartTimestamp=Mon 2026-01-05 10:00:00 UTC\nNRestarts=0\n"
	s := newScene(t, sshtest.Options{Sudo: sshtest.SudoAllows, Units: map[string]string{
		"web.service": "", "root.service": "", "bad.service": up + "X-Restart=fail\n", "stuck.service": up + "X-Restart=stuck\n"}})
	restart := func(unit string) *ran {
		return s.run(runners.SSHServiceRestart, map[string]any{"unit": unit, "settle_seconds": 0.3, "start_timeout_seconds": 1})
	}
	r := restart("web.service")
	got := r.report(t).Service
	if r.Result != executor.Succeeded || r.evidence() != "service_restart passed" || got.Before["MainPID"] != "4711" || got.After["MainPID"] != "4811" || got.After["ActiveState"] != "active" {
		t.Errorf("%+v, %s, %+v", r.Outcome, r.evidence(), got)
	}
	var detail serviceReport
	if err := json.Unmarshal(r.messages["evidence"][0].Evidence.Detail, &detail); err != nil || !cmp.Equal(detail.Before, got.Before) || !cmp.Equal(detail.After, got.After) {
		t.Errorf("the evidence does not hold both states: %s, %v", r.messages["evidence"][0].Evidence.Detail, err)
	}
	r = restart("root.service")
	if r.Result != executor.Succeeded || r.facts()[0] != "allowed restart of root.service sudo" || s.host.SudoLog() != "-n -u root -- systemctl restart root.service\n" {
		t.Errorf("%+v, %v, sudo was asked %q", r.Outcome, r.facts(), s.host.SudoLog())
	}
	for unit, message := range map[string]string{"bad.service": "status 1", "stuck.service": "the process of before"} {
		r = restart(unit)
		got := r.report(t).Service
		if r.ends() != "task_failed unknown" || r.evidence() != "service_restart failed" || !strings.Contains(r.Message, message) || got.Before["ActiveState"] != "active" || got.After["ActiveState"] == "" || got.Reason == "" {
			t.Errorf("%s: %+v, %s, %+v", unit, r.Outcome, r.evidence(), got)
		}
	}
	if r = restart("flap.service"); r.ends() != "task_failed unknown" || r.Code == nil || *r.Code != 5 {
		t.Errorf("a unit that is not there: %+v", r.Outcome)
	}
}

// It comes up, and ends again within the time that it must stay.
func TestRestartThatDoesNotStay(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Units: map[string]string{"flap.service": ""}})
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Twice after the restart: it was seen up.
		eventually(t, "the second look at the unit", func() bool { return strings.Count(s.host.Read("/var/log/systemctl.log"), "show") == 3 })
		s.host.Write("/var/lib/units/flap.service", "ActiveState=active\nSubState=running\nMainPID=5000\nExecMainStartTimestamp=x\nNRestarts=1\n", 0o644)
	}()
	r := s.run(runners.SSHServiceRestart, map[string]any{"unit": "flap.service", "settle_seconds": 3})
	<-done
	if r.ends() != "task_failed unknown" || r.evidence() != "service_restart failed" || !strings.Contains(r.Message, "did not stay up") {
		t.Errorf("%+v, %s", r.Outcome, r.evidence())
	}
}

// What a host says goes into messages that cannot carry everything.
func TestStateWithControlCharacters(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Units: map[string]string{"web.service": ""}})
	s.host.Write("/opt/bin/systemctl", "#!/bin/sh\nprintf 'ActiveState=act\\0ive\\nSubState=\\033[31mred\\377\\nMainPID=%d\\n' $$\n", 0o755)
	r := s.run(runners.SSHServiceRestart, map[string]any{"unit": "web.service", "start_timeout_seconds": 0.2})
	if r.ends() != "task_failed unknown" || r.evidence() != "service_restart failed" || r.report(t).Service.After["ActiveState"] != "act?ive" {
		t.Errorf("%+v, %s", r.Outcome, r.evidence())
	}
	if strings.ContainsAny(r.Message, "\x00\x1b") {
		t.Errorf("the message holds %q", r.Message)
	}
}

func TestRestartStopped(t *testing.T) {
	t.Parallel()
	s := newScene(t, sshtest.Options{Units: map[string]string{"web.service": "ActiveState=active\nMainPID=1\nX-Restart=hang\n"}})
	ctx, cancel := context.WithCancel(t.Context())
	s.ctx = ctx
	go func() {
		defer cancel()
		eventually(t, "the restart", func() bool { return strings.Contains(s.host.Read("/var/log/systemctl.log"), "restart") })
	}()
	r := s.run(runners.SSHServiceRestart, map[string]any{"unit": "web.service"})
	if r.ends() != "task_failed unknown" || r.evidence() != "service_restart inconclusive" || !strings.Contains(r.Message, "is confirmed") {
		t.Errorf("%+v, %s", r.Outcome, r.evidence())
	}
	eventually(t, "the end of all processes", func() bool { return len(s.host.Processes()) == 0 })
}
