package main

import "testing"

// What the executor said of its end goes before what the agent noted of it; a line
// that is cut is passed over.
func TestRunnerSays(t *testing.T) {
	for log, want := range map[string]string{
		"": "",
		`sage":"half a line"}` + "\n" + `{"event":"executor_outcome","message":"local.yml:1: hosts localhost is the runner itself"}` + "\n" + `{"event":"ended","text":"other"}` + "\n": "local.yml:1: hosts localhost is the runner itself",
		`{"event":"started"}` + "\n" + `{"event":"ended","text":"no Vault is configured here"}` + "\n":                                                                                  "no Vault is configured here",
		`{"event":"started"}` + "\n": "",
	} {
		if got := runnerSays([]byte(log)); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}
