# Every target works as root and as an ordinary user, without a terminal.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.NOTPARALLEL:

# Caches need a home; some build machines have none, or only /.
export HOME := $(shell tools/home.sh)
export XDG_CACHE_HOME := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
CACHE := $(XDG_CACHE_HOME)/execution-plane
LINT := $(CACHE)/bin/golangci-lint

# Two jobs at a time, so that small machines keep their memory.
export GOFLAGS := $(strip $(shell go env GOFLAGS) -p=2)

# Every package is tested once: under the race detector where goroutines meet,
# without it elsewhere (where processes meet, it would only slow their starts).
RACE_PACKAGES := ./agent ./api/... ./artifacts ./commands ./dispatch ./eventstore/... ./masker ./projections
PLAIN_PACKAGES = $(shell go list ./... | grep -vxF "$$(go list $(RACE_PACKAGES))")

.PHONY: build
build:
	mkdir -p bin
	go build -trimpath -o bin/ ./cmd/...

.PHONY: demo
demo:
	go run ./cmd/execution-plane demo

# What CI runs.
.PHONY: test
test: deps peers-s3 lint vet unit race known-bad

.PHONY: deps
deps:
	tools/deps.sh

.PHONY: peers-s3
peers-s3:
	test/peers/s3/build.sh

.PHONY: lint
lint:
	tools/build.sh $(LINT)
	$(LINT) run ./...
	cd tools && GOLANGCI_LINT=$(LINT) go test ./lintrules

.PHONY: vet
vet:
	go vet ./...

.PHONY: unit
unit:
	go test -timeout 20m $(PLAIN_PACKAGES)

.PHONY: race
race:
	go test -race -timeout 30m $(RACE_PACKAGES)

# Builds with one guard removed each: every one must be noticed.
.PHONY: known-bad
known-bad:
	go test -timeout 20m -tags broken ./internal/sim -run KnownBad

# The simulator for as long as told; FOR changes the hour.
.PHONY: chaos
chaos:
	go test -timeout 0 ./internal/sim -run 'TestSimulate$$' -v -sim.for $(or $(FOR),1h)

# Every fuzz target for 30 seconds; FUZZTIME changes it.
.PHONY: fuzz
fuzz:
	grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		echo "fuzz $${func#func } in $$(dirname "$$file")"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(or $(FUZZTIME),30s) "$$(dirname "$$file")" </dev/null; \
	done
