package main

import (
	"errors"

	"github.com/platform-core/execution-plane-service/agent/shim"
	"github.com/platform-core/execution-plane-service/runners"
	"github.com/platform-core/execution-plane-service/runners/ansible"
	"github.com/platform-core/execution-plane-service/runners/ssh"
	"github.com/platform-core/execution-plane-service/runners/verification"
)

// shimCmd and executorServeCmd exist for the help's and the parser's sake;
// protocolVerb carries them out before the parser runs.
type shimCmd struct{}

func (shimCmd) Run(*session) error { return errProtocolVerb }

var errProtocolVerb = &exitError{exitUsage, errors.New("this verb is called by the runner, not by people")}

// protocolVerb carries out the hidden verbs.
func protocolVerb(args []string) (code int, done bool) {
	switch {
	case len(args) == 1 && args[0] == "shim":
		return shim.Main(), true
	case len(args) == 3 && args[0] == "executor" && args[1] == "serve":
		return serveExecutor(args[2])
	}
	return 0, false
}

// serveExecutor is the executor of a job type, as runners start it.
func serveExecutor(jobType string) (code int, done bool) {
	switch jobType {
	case runners.TypeVerification:
		return verification.Checks{Ansible: ansible.Run}.Serve(), true
	case runners.TypeAnsible:
		return ansible.Serve(), true
	case runners.TypeSSH:
		return ssh.Serve(), true
	}
	return 0, false
}
