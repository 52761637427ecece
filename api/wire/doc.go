// Package wire holds the shapes of the HTTP API that are not the domain's own:
// requests, answers, and the headers of runner calls. It is what router, client,
// CLI and agent share; it decides nothing. JobSpec and ExecutionResult are in
// package domain. docs/api.md is the description for people, openapi.yaml the one
// for programs; a field added here is added there.
package wire
