# Build, test and install JobMesh. `make` alone lists the targets. Only e2e and bench need root, only image a container engine.

SHELL = /usr/bin/env bash -o pipefail
.SHELLFLAGS = -ec
.DEFAULT_GOAL = help

# The image that deploy and build-installer put into the Deployment, and that image builds.
IMG ?= jobmesh-controller:latest
# What builds the image.
CONTAINER_TOOL ?= $(notdir $(firstword $(shell command -v docker podman)))
KUBECTL ?= kubectl
# Arguments of run, such as ARGS="--default-mode=Enforce", and of test-compat.
ARGS ?=
# Arguments of go test, such as TEST_ARGS="-run TestDecide".
TEST_ARGS ?=

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
VERSION_PACKAGE = github.com/jobmesh/jobmesh/internal/version
LDFLAGS = -s -w -X $(VERSION_PACKAGE).Version=$(VERSION) -X $(VERSION_PACKAGE).Revision=$(REVISION)
GO_BUILD = CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)"

# Every file that generate and manifests write.
GENERATED = api/v1alpha1/zz_generated.deepcopy.go config/crd/bases config/rbac/role.yaml

# Modules of their own, whose dependencies are no business of the operator's.
TEST_MODULES = test/e2e test/faults

##@ General

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage:\n  make \033[36m<target>\033[0m\n"} \
		/^[a-zA-Z_0-9-]+:.*?##/ { printf "  \033[36m%-16s\033[0m %s\n", $$1, $$2 } \
		/^##@/ { printf "\n\033[1m%s\033[0m\n", substr($$0, 5) }' $(MAKEFILE_LIST)

##@ Development

.PHONY: generate
generate: bin/controller-gen ## Generate the DeepCopy functions of api/.
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: bin/controller-gen ## Generate the CRD from api/ and the ClusterRole from the markers in controllers/.
	bin/controller-gen crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	bin/controller-gen rbac:roleName=jobmesh-manager paths=./controllers/... output:rbac:artifacts:config=config/rbac

.PHONY: fmt
fmt: ## Format the Go sources.
	go fmt ./...

.PHONY: vet
vet: ## Run go vet.
	go vet ./...

.PHONY: lint
lint: bin/golangci-lint ## Run golangci-lint, with Kube-API-Linter over api/.
	bin/golangci-lint run ./...
	for module in $(TEST_MODULES); do (cd $$module && "$(CURDIR)/bin/golangci-lint" run ./...); done

.PHONY: lint-fix
lint-fix: bin/golangci-lint ## Run golangci-lint and let it fix what it can.
	bin/golangci-lint run --fix ./...

# What kube-score wants otherwise, and why the manifests are as they are:
# - a CPU limit: a throttled operator reaps late, and its request already leaves the others their share;
# - an image tag: build-installer and deploy set it;
# - ephemeral storage: the root filesystem is read-only and no volume is mounted; a limit would evict the operator for its rotated log;
# - user and group above 10000: the image's are 65532, and numbers here would keep platforms from choosing their own;
# - podAntiAffinity: topologySpreadConstraints spread the replicas;
# - a rule for egress (a warning): the API server's address and port are the cluster's own, and a wrong guess cuts the operator off.
SCORE = bin/kube-score score --ignore-container-cpu-limit \
	--ignore-test container-image-tag --ignore-test container-ephemeral-storage-request-and-limit \
	--ignore-test container-security-context-user-group-id --ignore-test deployment-has-host-podantiaffinity

.PHONY: lint-manifests
lint-manifests: bin/kube-score bin/kustomize ## Run kube-score over the installation, with the NetworkPolicy.
	{ bin/kustomize build config/default; echo ---; bin/kustomize build config/network-policy; } | $(SCORE) -

# The Go release that go.mod names: what is released is built with it, whatever is installed here.
TOOLCHAIN = $(shell sed -n 's/^toolchain //p' go.mod)

# The vulnerability database comes as a Go module, the newest there is: it can be had wherever modules can.
.PHONY: vulncheck
vulncheck: bin/govulncheck bin/indexdb ## Look for known vulnerabilities in what the code calls, as built with go.mod's toolchain.
	database=$$(go mod download -json golang.org/x/vulndb@latest | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p') && \
		echo "$${database##*/}, $(TOOLCHAIN)" && rm -rf bin/vulndb && bin/indexdb -vulns "$$database/data/osv" -out bin/vulndb
	GOTOOLCHAIN=$(TOOLCHAIN) bin/govulncheck -db "file://$(CURDIR)/bin/vulndb" ./...

.PHONY: verify
verify: generate manifests lint lint-manifests bin/kustomize ## Generate and lint everything; fail if a committed file is not what it should be.
	for module in . $(TEST_MODULES); do (cd $$module && go mod tidy -diff); done
	for dir in default network-policy samples; do bin/kustomize build config/$$dir >/dev/null; done
	git --no-pager diff --exit-code -- $(GENERATED) || { echo "verify: commit the generated files above" >&2; exit 1; }
	untracked=$$(git ls-files --others --exclude-standard -- $(GENERATED)); \
		if [[ -n $$untracked ]]; then echo "verify: generated, but not in git: $$untracked" >&2; exit 1; fi

.PHONY: controlplane
controlplane: ## Build kube-apiserver, kube-controller-manager, kube-scheduler and etcd once; print their folder.
	@test/controlplane/build.sh

.PHONY: test
test: controlplane ## Run every test that needs no root, against that API server.
	@assets=$$(test/controlplane/build.sh) && \
		JOBMESH_ASSETS="$$assets" KUBEBUILDER_ASSETS="$$assets" go test $(TEST_ARGS) ./... && \
		JOBMESH_ASSETS="$$assets" go test -C test/faults -short $(TEST_ARGS) .

# How long fuzz runs each target, the targets it runs at once, and the names it takes, such as FUZZ="Decide|Text".
FUZZTIME ?= 10m
FUZZ_JOBS ?= 1
FUZZ ?=

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME=10m, FUZZ_JOBS=1 at once; print the executions of each.
	@FUZZTIME="$(FUZZTIME)" FUZZ_JOBS="$(FUZZ_JOBS)" FUZZ="$(FUZZ)" hack/fuzz.sh

# The releases of test-compat, such as VERSIONS="1.28.15 1.37.2" or VERSIONS="oldest newest". Without it they are those of docs/compatibility.md.
VERSIONS ?=

.PHONY: test-compat
test-compat: ## Run the tests that need an API server on old and new Kubernetes; ARGS=-update writes docs/compatibility.md.
	@go run ./test/compat $(ARGS) $(VERSIONS)

.PHONY: test-faults
test-faults: controlplane ## Break what the operator stands on while Jobs finish; ARGS=-update writes its table in docs/reliability.md.
	@assets=$$(test/controlplane/build.sh) && \
		JOBMESH_ASSETS="$$assets" go test -C test/faults -count=1 -timeout 30m -v $(TEST_ARGS) . $(ARGS)

.PHONY: demo
# It is compiled as build compiles, so that the packages they share are compiled once. It takes the shell's place, so that
# what ends make ends it too, in good order.
demo: ## Show a stuck Job and how it is reaped, on a real control plane with a simulated node.
	@echo "Building the operator and the demo (minutes the first time, then seconds)"
	@$(GO_BUILD) -o bin/ ./cmd/manager ./cmd/kubectl-jobmesh ./test/demo
	@assets=$$(test/controlplane/build.sh) && JOBMESH_ASSETS="$$assets" exec bin/demo

.PHONY: run
run: ## Run the operator from here against the cluster of your kubeconfig; ARGS="…" are its flags.
	go run ./cmd/manager $(ARGS)

##@ End-to-end

# A folder that keeps the logs of e2e even when it passes; without it they are kept, and their folder is printed, after a failure.
ARTIFACTS ?=

# What needs the network is fetched first: the node that the tests run beside has none.
.PHONY: e2e
e2e: build bin/kustomize ## Run the operator on a real node. Needs root on Linux, or KUBECONFIG=… PROXY_IMAGE=… APP_IMAGE=…
	go build -C test/e2e -o "$(CURDIR)/bin/e2e" ./cmd/e2e
	go list -C test/e2e -deps -test ./... >/dev/null
	ARTIFACTS="$(ARTIFACTS)" bin/e2e go test -C test/e2e -count=1 -timeout 20m -parallel 8 -v $(TEST_ARGS) ./cases

# Flags of bench, such as BENCH_ARGS="-jobs 5 -bursts 1".
BENCH_ARGS ?=

.PHONY: bench
bench: build bin/kustomize ## Measure how fast Jobs end, beside what people do instead; write docs/performance.md. Needs what e2e needs.
	go build -C test/e2e -o "$(CURDIR)/bin/" ./cmd/e2e ./bench
	ARTIFACTS="$(ARTIFACTS)" bin/e2e bin/bench $(BENCH_ARGS)

# Flags of scale, such as SCALE_ARGS="-scenario storm -pods 1000".
SCALE_ARGS ?=

.PHONY: scale
scale: build ## Measure storms, restarts, hung nodes, full clusters and churn (an hour, Linux, no root); write docs/reliability.md.
	@$(GO_BUILD) -o bin/ ./test/scale
	@assets=$$(test/controlplane/build.sh) && JOBMESH_ASSETS="$$assets" ARTIFACTS="$(ARTIFACTS)" exec bin/scale $(SCALE_ARGS)

##@ Build

.PHONY: build
build: ## Build bin/manager and bin/kubectl-jobmesh.
	$(GO_BUILD) -o bin/manager ./cmd/manager
	$(GO_BUILD) -o bin/kubectl-jobmesh ./cmd/kubectl-jobmesh

.PHONY: image
image: ## Build the operator's image as IMG, with docker or podman.
	@if ! command -v "$(CONTAINER_TOOL)" >/dev/null; then \
		echo "image: needs docker or podman, or CONTAINER_TOOL=<what builds images here>" >&2; exit 1; fi
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) -t $(IMG) .

.PHONY: build-installer
build-installer: manifests overlay ## Write dist/install.yaml, the whole installation with IMG.
	bin/kustomize build dist/overlay > dist/install.yaml
	@echo dist/install.yaml

##@ Deployment

ignore-not-found ?= false

.PHONY: install
install: manifests bin/kustomize ## Install the CRD into the cluster of your kubeconfig.
	bin/kustomize build config/crd | $(KUBECTL) apply -f -

.PHONY: uninstall
uninstall: bin/kustomize ## Remove the CRD, and with it every policy. ignore-not-found=true passes over what is gone.
	bin/kustomize build config/crd | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

.PHONY: deploy
deploy: manifests overlay ## Install everything, with the image IMG=<registry>/<name>:<tag>.
	bin/kustomize build dist/overlay | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: bin/kustomize ## Remove everything that deploy installed, policies included.
	bin/kustomize build config/default | $(KUBECTL) delete --ignore-not-found=$(ignore-not-found) -f -

# IMG is set in an overlay outside git, so that deploying leaves no change in the checkout.
.PHONY: overlay
overlay: bin/kustomize
	rm -rf dist/overlay && mkdir -p dist/overlay
	cd dist/overlay && "$(CURDIR)/bin/kustomize" create --resources ../../config/default && \
		"$(CURDIR)/bin/kustomize" edit set image jobmesh-controller="$(IMG)"

##@ Tools

.PHONY: tools
tools: $(addprefix bin/,controller-gen kustomize golangci-lint govulncheck indexdb kube-score) ## Build the pinned tools into bin/. Each has a module in tools/.

.PHONY: clean
clean: ## Remove bin/ and dist/.
	rm -rf bin dist

# A tool's package is the one that its module names in a tool directive. It is built anew when that module changes.
bin/%: tools/%/go.mod tools/%/go.sum
	@echo "Building bin/$*"
	cd tools/$* && CGO_ENABLED=0 go build -trimpath -o "$(CURDIR)/$@" tool
