# Everything that is done with this repository. `make` alone explains itself.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS := .tmp/bin
BUF_VERSION := v1.73.0
LINT_VERSION := v2.15.0
PROTOVALIDATE_VERSION := v1.2.2
GRPCURL_VERSION := v1.9.4
BUF := $(TOOLS)/buf-$(BUF_VERSION)
LINT := $(TOOLS)/golangci-lint-$(LINT_VERSION)
GRPCURL := $(TOOLS)/grpcurl-$(GRPCURL_VERSION)
THIRD_PARTY := .tmp/third_party/$(PROTOVALIDATE_VERSION)

# Where a mesh of `make demo` and `make dev` keeps its data.
DATA_DIR ?= .troupe
# What `make demo` asks.
ASK ?= What may an agent write?

.PHONY: help
help: ## Show this list.
	@echo "Troupe: LLM agents, run the way Kubernetes runs containers."
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: bin/troupe ## Ask a mesh of four agents one real question about this repository's documents, and stop.
	@data=$$(mktemp -d); trap 'rm -rf "$$data"' EXIT; \
	bin/troupe dev --data-dir "$$data" --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0 --docs docs --ask "$(ASK)"

.PHONY: dev
dev: bin/troupe ## Run a whole mesh in one process, until Ctrl-C.
	bin/troupe dev --data-dir $(DATA_DIR) --docs docs

.PHONY: build
build: ## Build all binaries into bin/, stripped, and the same wherever they are built.
	go build -trimpath -ldflags '-s -w' -o bin/ ./cmd/troupe ./services/memory ./services/orchestrator ./services/worker

# What every release must keep: the stripped size of bin/troupe, and the CPU time of the best of five starts.
# CPU time, because the time on a clock depends on what else the machine does.
SIZE_LIMIT_MB ?= 75
START_LIMIT_MS ?= 150
.PHONY: size
size: ## Check that bin/troupe is small enough and starts fast enough.
	@mkdir -p .tmp && go build -ldflags '-s -w' -o .tmp/troupe ./cmd/troupe
	@bytes=$$(wc -c <.tmp/troupe); TIMEFORMAT='%3U %3S'; \
	best=$$(for _ in 1 2 3 4 5; do { time .tmp/troupe --version >/dev/null; } 2>&1; done | awk '{print int(1000 * ($$1 + $$2))}' | sort -n | head -1); \
	echo "bin/troupe has $$((bytes / 1000000)) MB (limit $(SIZE_LIMIT_MB)) and starts in $$best ms of CPU (limit $(START_LIMIT_MS))"; \
	[ "$$bytes" -le $$(($(SIZE_LIMIT_MB) * 1000000)) ] && [ "$$best" -le $(START_LIMIT_MS) ]

# Without -trimpath: lint and the tests that build programs do without it too, and what they have
# compiled need not be compiled again.
.PHONY: bin/troupe
bin/troupe:
	@echo "building bin/troupe; the first time takes a few minutes"
	@go build -o bin/ ./cmd/troupe

# Tests wait more than they compute, so four packages run at once, and four tests of each. `make lint` vets, and
# more strictly than tests would.
GO_TEST = go test -vet=off -shuffle=on -p 4 -parallel 4 -timeout 15m
.PHONY: test
test: redis-server ## Run all tests against real servers.
	$(GO_TEST) ./test/scenario ./... # the longest package first

# Compiling the embedded etcd, the SDKs of providers and Kubernetes with the race detector takes longer than
# all tests. So the tests of packages that need them run with it at night.
HEAVY = etcd/server|kustomize|anthropic-sdk|google.golang.org/genai
.PHONY: test-race
test-race: redis-server ## Run all tests that compile quickly with the race detector.
	@list=$$(go list -test -f '{{if .ForTest}}{{.ForTest}} {{join .Deps " "}}{{end}}' ./... | \
	awk '{heavy[$$1] = heavy[$$1] || /$(subst /,\/,$(HEAVY))/} END {for (p in heavy) if (!heavy[p]) print p}' | sort); \
	$(GO_TEST) -race -p 2 $$list # with the detector, tests compute more than they wait

.PHONY: test-race-all
test-race-all: redis-server ## Run all tests with the race detector.
	$(GO_TEST) -race -p 2 ./...

.PHONY: check
check: verify lint size test docs-run test-race test-node demo chaos ## Run every check that CI runs, but for fuzzing.

.PHONY: nightly
nightly: ## Run what takes too long for CI: all tests with the race detector, 300 kills, 36 kills of orchestrators, 20,000 simulated days, a minute of fuzzing a target, all mutants.
	$(MAKE) test-race-all
	$(MAKE) chaos KILLS=300
	$(MAKE) replicas
	$(MAKE) simulate SEEDS=20000
	$(MAKE) model
	$(MAKE) fuzz
	$(MAKE) mutants
	$(MAKE) mutants-control

# ONLY=LC or ONLY=CO-22,CO-23 takes the mutations of some requirements; DRAW=15 takes that many at random, and SEED repeats a draw.
MUTANTS = $(if $(ONLY),-only $(ONLY)) $(if $(DRAW),-draw $(DRAW)) $(if $(SEED),-seed $(SEED))
.PHONY: mutants
mutants: redis-server ## Break the code, one clause of one requirement after the other, and check that the test of the requirement fails.
	go run ./test/mutants $(MUTANTS)

CONTROL ?= 200
.PHONY: mutants-control
mutants-control: redis-server ## Break the code at random places, and check that tests notice nine of ten.
	go run ./test/mutants -control $(CONTROL) $(MUTANTS)

.PHONY: authz
authz: ## Show who may call what, after calling every method as every kind of caller.
	@go test -count=1 -run TestMatrix_MatchesTableAndDocs ./internal/authz -update
	@cat docs/authz.md

.PHONY: docs
docs: ## Write the tables of docs/ that tests compare with the code.
	go test -count=1 ./pkg -run Documented -update

.PHONY: docs-run
docs-run: redis-server curl $(GRPCURL) $(THIRD_PARTY) ## Run every shell block of every page, and compare what is printed with what the page quotes.
	go test -tags docs -count=1 -parallel 4 -run 'Pages|Shapes' ./test/docs

.PHONY: api
api: ## Write the golden file of the public API.
	go test -count=1 ./pkg -run API -update

.PHONY: test-node
test-node: node ## Test what needs Node: the worker in TypeScript, and tools of real MCP servers.
	cd examples/worker-node && npm ci --no-audit --no-fund --silent && npm test
	go test -race -tags node ./examples/worker-node
	cd pkg/tool/mcptool/testdata/servers && npm ci --no-audit --no-fund --silent
	go test -race -tags node -run Node ./pkg/tool/mcptool ./test/models

.PHONY: node
node:
	@command -v npm >/dev/null || { \
	echo "installing nodejs and npm, which the worker in TypeScript needs"; \
	as=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	$$as apt-get update -qq && $$as apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null; }

.PHONY: redis-server
redis-server:
	@command -v redis-server >/dev/null || { \
	echo "installing redis-server, which the tests run for real"; \
	as=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	$$as apt-get update -qq && $$as apt-get install -y -qq --no-install-recommends redis-server >/dev/null; }

.PHONY: curl
curl:
	@command -v curl >/dev/null || { \
	echo "installing curl, which pages of docs use"; \
	as=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	$$as apt-get update -qq && $$as apt-get install -y -qq --no-install-recommends curl >/dev/null; }

# How many workers `make chaos` kills: KILLS=300 is the long run, with a third as many of each
# other fault, and takes about 20 minutes. SEED repeats a plan; BUGS=none leaves the planted
# bugs out, BUGS=B1,B7 takes some.
CHAOS = $(if $(KILLS),-chaos.worker-kills=$(KILLS) $(foreach f,memory-kills redis-kills stops,-chaos.$(f)=$$(($(KILLS)/3))) -chaos.cuts=$(KILLS)) \
	$(if $(SEED),-chaos.seed=$(SEED)) $(if $(BUGS),-chaos.bugs=$(BUGS))
.PHONY: chaos
chaos: redis-server ## Kill, stop and cut off the parts of a real mesh under load, and check every promise; see docs/chaos.md.
	go test -tags chaos -count=1 -v -timeout 2h ./test/chaos -run 'Chaos|Rollback|PlantedBugs' $(CHAOS)

# How many SEEDS `make simulate` runs, or for how much TIME, from which SEED on (a random one by default), with which
# FAULTS (crash, message, freeze, partition, outage, clock, rollback, registry, update; all by default). RECORD=file
# repeats a run from its record. BUGS=all or BUGS=B1,B7 searches planted bugs.
SEEDS ?= 500
SIMULATE = -simulation.seeds=$(SEEDS) -simulation.seed=$(or $(SEED),0) -simulation.folder=$(CURDIR)/.tmp/simulation \
	$(if $(TIME),-simulation.time=$(TIME)) $(if $(FAULTS),-simulation.faults=$(FAULTS)) $(if $(BUGS),-simulation.bugs=$(BUGS)) \
	$(if $(RECORD),-simulation.record=$(abspath $(RECORD)))
.PHONY: simulate
simulate: ## Run a simulated mesh under the faults of many seeds, and check every promise; see docs/simulation.md.
	GOGC=400 go test -vet=off -count=1 -v -timeout 12h -run '$(if $(BUGS),TestPlantedBugs,TestSimulation|TestRecord)$$' ./test/simulation $(SIMULATE)

.PHONY: model
model: ## Visit every state of the protocol of a turn; see docs/simulation.md.
	GOGC=400 go test -vet=off -count=1 -v ./services/orchestrator/internal/turn/model -model.all

# How long each target is fuzzed, and in which folders there are some; make test runs their seeds.
# They come in any order, so that what is cut off is not always the same. 10m is the long run, and
# takes five hours. Only what is ours is instrumented: with -fuzz everything would be, SDKs and all,
# which takes 20 minutes to build for the ports, and has the search lose itself in what is not ours.
# Until Go 1.27 the end of the time may be told as a failure (golang/go#75804); a finding has an input.
FUZZTIME ?= 60s
FUZZIN ?= cmd internal pkg services test
OURS = github.com/troupe-dev/troupe
.PHONY: fuzz
fuzz: redis-server ## Throw anything at every port and every parser, FUZZTIME (60s) at each.
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	grep -rHoE --include='*_test.go' '^func Fuzz[A-Za-z]+' $(FUZZIN) | sort -R | while IFS=: read -r file name; do \
	echo "== $${name#func } of $${file%/*}, $(FUZZTIME)"; \
	go test -gcflags='$(OURS)/...=-d=libfuzzer' -gcflags='$(OURS)/pkg/gen/...=' -v -timeout 0 -run '^$$' "./$${file%/*}" -args \
	-test.fuzz="^$${name#func }\$$" -test.fuzztime=$(FUZZTIME) -test.fuzzminimizetime=2s -test.parallel=1 \
	-test.fuzzcachedir="$(CURDIR)/.tmp/fuzz/$${file%/*}" </dev/null 2>&1 | tee "$$log" || \
	{ grep -q '^ *context deadline exceeded$$' "$$log" && ! grep -q 'Failing input written' "$$log"; } || exit 1; done

.PHONY: replicas
replicas: redis-server ## Kill one of three orchestrators under load every 5 seconds, 36 times, and check what clients see.
	go test -race -timeout 20m -run Replicas ./test/scenario -replicas.kills=36 -replicas.every=5s -v

.PHONY: bench
bench: redis-server ## Measure turns through a mesh in one process.
	go test -run '^$$' -bench . -benchtime 3s ./test/bench

.PHONY: bench-adk
bench-adk: ## Compare the agent loop with the loop of ADK-Go, in a module of its own.
	cd bench/adk && go test -mod=mod -run '^$$' -bench .

.PHONY: lint
lint: $(LINT) $(BUF) $(THIRD_PARTY) ## Check style, the .proto files, and that no code is unreachable.
	$(LINT) run ./...
	@dead=$$(go tool deadcode -test -tags chaos,node,docs ./...); [ -z "$$dead" ] || { echo "$$dead"; exit 1; }
	$(BUF) lint proto

.PHONY: fmt
fmt: $(LINT) $(BUF) $(THIRD_PARTY) ## Format Go and protobuf files.
	$(LINT) fmt ./...
	$(BUF) format -w proto

.PHONY: generate
generate: $(BUF) $(THIRD_PARTY) ## Generate pkg/gen from proto.
	$(BUF) generate

.PHONY: verify
verify: generate ## Check that generated code, go.mod and the wire API are as committed.
	@git diff --exit-code -- pkg/gen || { echo "pkg/gen is not what proto says; commit what 'make generate' made"; exit 1; }
	@[ -z "$$(git status --porcelain -- pkg/gen)" ] || { git status --short -- pkg/gen; exit 1; }
	go mod tidy -diff
	go mod verify
	@$(BUF) format -d --exit-code proto
	@echo "buf breaking against proto/baseline.binpb"; $(BUF) breaking proto --against proto/baseline.binpb
	@base=$$(git rev-parse -q --verify origin/main || git rev-parse -q --verify main || true); \
	if [ -n "$$base" ] && git diff --quiet "$$base" -- proto/baseline.binpb 2>/dev/null && git cat-file -e "$$base:proto/baseline.binpb" 2>/dev/null; then \
	echo "buf breaking against $$base"; \
	rm -rf .tmp/base && mkdir -p .tmp/base && git archive "$$base" proto | tar -x -C .tmp/base; \
	cp buf.yaml .tmp/base/ && mkdir -p .tmp/base/.tmp && cp -r .tmp/third_party .tmp/base/.tmp/; \
	$(BUF) build .tmp/base -o .tmp/base.binpb && $(BUF) breaking proto --against .tmp/base.binpb; fi

# The wire API may break once, before the first release (docs/adr/0038). From then on the baseline binds:
# nothing of it may be renamed or removed.
.PHONY: baseline
baseline: $(BUF) $(THIRD_PARTY) ## Make the wire API as it is the baseline of the check for breaking changes.
	$(BUF) build proto --exclude-source-info -o proto/baseline.binpb

.PHONY: tools
tools: $(LINT) $(BUF) $(THIRD_PARTY) ## Build what lint, fmt, generate and verify use.

.PHONY: clean
clean: ## Remove what was built, and the data of `make dev`.
	rm -rf bin .tmp $(DATA_DIR)

$(BUF):
	@mkdir -p $(TOOLS)
	@echo "building buf $(BUF_VERSION); this takes a few minutes, once"
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
	@mv $(TOOLS)/buf $@ && touch $@

$(LINT):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint $(LINT_VERSION); this takes a few minutes, once"
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv $(TOOLS)/golangci-lint $@ && touch $@

$(GRPCURL):
	@mkdir -p $(TOOLS)
	@echo "building grpcurl $(GRPCURL_VERSION)"
	@GOBIN=$(CURDIR)/$(TOOLS) go install github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION)
	@mv $(TOOLS)/grpcurl $@ && touch $@

# The .proto of protovalidate comes out of the Go module cache, so that no other registry
# is needed.
$(THIRD_PARTY):
	@rm -rf .tmp/third_party && mkdir -p $@
	@dir=$$(go mod download -json github.com/bufbuild/protovalidate@$(PROTOVALIDATE_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'); \
	cp -r "$$dir/proto/protovalidate/buf" $@/ && chmod -R u+w $@ && touch $@
