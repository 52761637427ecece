// Package ssh is the executor of the SSH runner: command templates, files, service
// restarts and facts on hosts, nothing else.
//
// What lives where: serve.go joins the package to the executor protocol and is the
// order of things; decide.go asks policy, with exactly the task's bundle, and
// records what it said; connect.go logs in; command.go, upload.go, download.go,
// service.go and facts.go are the actions; confine.go keeps paths below their root;
// report.go writes the result; outcome.go words how it ended.
//
// What may be touched: a new action is one file, its schema in schemas/, one line in
// actions, and its entry in the catalogue. No action runs a command that policy, or
// this package as a constant, did not give; arguments reach a host only through
// sshaccess. What is decided at submit is decided again here, before anything is
// dialled.
package ssh
