package main

import (
	"errors"

	"github.com/platform-core/execution-plane-service/agent/shim"
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
	case len(args) == 3 && args[0] == "executor" && args[1] == "serve" && args[2] == "verification":
		return verification.Serve(), true
	}
	return 0, false
}
