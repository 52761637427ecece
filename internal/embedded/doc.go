// Package embedded is the embedded default: a private Postgres, an in-process S3,
// the whole service and a runner, started together on one machine. make demo,
// serve --dev and the end-to-end tests use it.
package embedded
