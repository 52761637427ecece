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
RACE_PACKAGES := ./agent ./api/... ./artifacts ./callbacks ./commands ./dispatch ./eventstore/... ./forwarder ./projections/...
# Much data and no more goroutines than elsewhere: these run without the detector.
MUCH_DATA := ^(TestSecretArtifactWhileVaultIsAway|TestPatternsOfSecretArtifactsAreBounded|TestALargeSecret)
# The whole, with a dozen processes a test, has the machine to itself.
WHOLE := ./internal/e2e
PLAIN_PACKAGES = $(shell go list ./... | grep -vxF "$$(go list $(RACE_PACKAGES) $(WHOLE))")

# Without C: a runner's program also runs inside root file systems that are not its own.
.PHONY: build
build:
	mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

.PHONY: demo
demo:
	go run ./cmd/execution-plane demo

# What CI runs.
.PHONY: test
test: deps peers-s3 peers-vault peers-kafka peers-hosts lint vet previous unit race known-bad fuzz-briefly

.PHONY: deps
deps:
	tools/deps.sh

.PHONY: peers-s3
peers-s3:
	test/peers/s3/build.sh

.PHONY: peers-vault
peers-vault:
	test/peers/vault/build.sh

.PHONY: peers-kafka
peers-kafka:
	tools/deps.sh kafka
	test/peers/kafka/build.sh

# sshd, ansible-core, bubblewrap, podman, runc: from the distribution's packages.
.PHONY: peers-hosts
peers-hosts:
	test/peers/hosts/install.sh

# The tests' broker for people: one node on 127.0.0.1:9092 (PORT), until Ctrl-C.
.PHONY: kafka
kafka: peers-kafka
	exec test/peers/kafka/run.sh $(or $(PORT),9092)

.PHONY: lint
lint:
	tools/build.sh $(LINT)
	$(LINT) run ./...
	cd test/bench && $(LINT) run ./...
	cd tools && GOLANGCI_LINT=$(LINT) go test ./lintrules

.PHONY: vet
vet:
	go vet ./...

# The release before this one, which a test runs beside this one. Where the
# history is not here it says how to get it, and the tests go on without.
.PHONY: previous
previous:
	tools/previous.sh || test $$? -eq 3

.PHONY: unit
unit:
	go test -timeout 20m $(PLAIN_PACKAGES)
	go test -timeout 30m $(WHOLE)
	go test ./agent -run '$(MUCH_DATA)'
	cd test/bench && go test -timeout 5m ./...

.PHONY: race
race:
	go test -race -timeout 30m -skip '$(MUCH_DATA)' $(RACE_PACKAGES)
	go test -race ./masker -run 'Concurrent|AddWhile|Closed|Splits'

# Builds with one guard removed each: every one must be noticed.
.PHONY: known-bad
known-bad:
	go test -timeout 20m -tags broken ./internal/sim -run KnownBad

# The cluster of real processes and then the simulator, half of the time each; FOR
# changes the hour. Then every crash point of delivery, a few minutes. Namespaces are asked for: without them half of the faults of a
# network would not be tested.
.PHONY: chaos
chaos: deps peers-s3 peers-kafka
	seconds=$$(( ($$(sed 's/h/*3600+/; s/m/*60+/; s/s/+/; s/$$/ +0/' <<<"$(or $(FOR),1h)")) / 2 )); \
	go test -timeout 0 ./internal/cluster -run 'TestCluster$$' -v -cluster.for $${seconds}s -cluster.netns require; \
	go test -timeout 0 ./internal/sim -run 'TestSimulate$$' -v -sim.for $${seconds}s
	go test -timeout 30m ./internal/e2e -run 'TestDelivery$$|TestBroker' -v -e2e.long
	go test -timeout 30m ./forwarder -run 'TestAgainstKafka$$' -v -forwarder.long

# The cluster alone: FOR (10m), SEED (random), NETNS (auto, require, off).
.PHONY: cluster
cluster: deps peers-s3 peers-kafka
	go test -timeout 0 ./internal/cluster -run 'TestCluster$$' -v -cluster.for $(or $(FOR),10m) -cluster.seed $(or $(SEED),0) -cluster.netns $(or $(NETNS),auto)

# The leak matrix of the masker at length: PROBES (10,000,000), SEED (from the clock).
.PHONY: leakhunt
leakhunt:
	go test -timeout 0 ./masker -run 'TestLeakMatrix$$|TestLongPEM$$|TestBigSecretsStayBounded$$' -v -leak.probes $(or $(PROBES),10000000) -leak.seed $(or $(SEED),0)

# What stands between a secret and the world, for some seconds each. All the others
# run on their committed corpus in every test run.
.PHONY: fuzz-briefly
fuzz-briefly:
	$(MAKE) --no-print-directory fuzz FUZZTIME=3s FUZZ='Fuzz(Patterns|Split|Stream|SecretReference|ParseReference)$$$$'

# Every fuzz target for 30 seconds; FUZZTIME changes it, FUZZ takes those that it
# matches.
.PHONY: fuzz
fuzz:
	grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | grep -E '$(or $(FUZZ),Fuzz)' | sort | while IFS=: read -r file func; do \
		echo "fuzz $${func#func } in $$(dirname "$$file")"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzzminimizetime 1s -fuzztime $(or $(FUZZTIME),30s) "$$(dirname "$$file")" </dev/null; \
	done

# Figures beside their peers, some 40 minutes. PART takes some parts only (make
# bench PART=append,group), ARGS further arguments (-o json, -fsync on).
.PHONY: bench
bench: peers-kafka
	cd test/bench && go run . $(if $(PART),-part $(PART)) $(ARGS)
