# One verb for each job. `make help` lists them; every other file that names a check calls one of these.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# A toolchain that rustup or `cargo install` has just put here is found in the same run.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# Our programs: what they need is no dependency of the libraries.
FEATURES := handle-watcher-client/cli,handle-watcher/daemon

# Where `make serve` listens; without a runtime folder below the target folder, where nobody else can be first.
SOCKET ?= $(or $(HANDLE_WATCHER_SOCKET),$(or $(XDG_RUNTIME_DIR),$(abspath $(TARGET_DIR)))/handle-watcher.sock)

# How long each subject of a bench is measured, and which bench.
BENCH ?= all
BENCH_SECONDS ?= 1
# How long `make stress` and `make sanitize` run. The ordinary tests run the same stress for 30 seconds.
STRESS_SECONDS ?= 300
# How long the stress may miss a rule that was left out.
MUTATION_SECONDS ?= 60
# How long each fuzz target is fed, and which ones.
FUZZ ?= frame pickle session status
FUZZ_SECONDS ?= 60
FUZZ_DIR = $(TARGET_DIR)/fuzz
FUZZ_FLAGS = -Zsanitizer=address -Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares
# How long `make hostile` runs. The ordinary tests run the same for 10 seconds.
HOSTILE_SECONDS ?= 60
# loom tries every order of steps with up to this many forced switches: enough for short critical sections, and bounded.
export LOOM_MAX_PREEMPTIONS ?= 3

.PHONY: help setup run serve test loom stress mutations sanitize fuzz hostile check check-peers bench examples doc clean

help: ## List every verb
	@echo 'Usage: make VERB'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

setup: ## Install what building and testing need, and only what is missing
	@.ci/setup.sh build

run: setup ## Show the tour: one watcher over real sockets, files, timers and children, and the service with two clients
	$(CARGO) build --release --locked -p handle-watcher -p handle-watcher-examples --features handle-watcher/daemon \
	  --bin handle-watcherd --bin tour
	@$(TARGET_DIR)/release/tour

serve: setup ## Run the service in the foreground at SOCKET (default: in XDG_RUNTIME_DIR), until ctrl-c
	$(CARGO) build --release --locked -p handle-watcher --features handle-watcher/daemon --bin handle-watcherd
	@echo 'clients: export HANDLE_WATCHER_SOCKET=$(SOCKET)'
	@exec $(TARGET_DIR)/release/handle-watcherd --socket '$(SOCKET)'

test: setup ## Run every test, doctest, the 30-second stress and the loom models (no peers are downloaded)
	$(CARGO) test --workspace --locked --features $(FEATURES)
	@$(MAKE) --no-print-directory loom

loom: setup ## Run the loom models alone
	RUSTFLAGS='--cfg loom' $(CARGO) test --release --locked -p handle-watcher --test loom --target-dir $(TARGET_DIR)/loom

stress: setup ## Run the stress for STRESS_SECONDS (default 300), optimised
	HANDLE_WATCHER_STRESS_SECONDS=$(STRESS_SECONDS) \
	  $(CARGO) test --release --locked -p handle-watcher-client --test stress -- --nocapture

# In a copy below the target folder. HANDLE_WATCHER_MUTATION="NAME NAME" leaves out only those rules.
mutations: setup ## Leave each rule of the library out, one after the other: the stress must notice within MUTATION_SECONDS
	HANDLE_WATCHER_MUTATION_SECONDS=$(MUTATION_SECONDS) \
	  $(CARGO) test --locked -p handle-watcher-client --test mutations -- --ignored --nocapture

# RUSTC_BOOTSTRAP lets the installed stable toolchain, which brings the sanitizer's library, take the unstable flag. With
# --target the flag stays away from build scripts. valgrind 3.19 is no help: it does not know epoll_pwait2(2).
sanitize: setup ## Run the stress for STRESS_SECONDS under the address sanitizer: memory errors and leaks
	HANDLE_WATCHER_STRESS_SECONDS=$(STRESS_SECONDS) RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address' \
	  $(CARGO) test --locked -p handle-watcher-client --test stress \
	  --target "$$(rustc -vV | sed -n 's/^host: //p')" --target-dir $(TARGET_DIR)/sanitize -- --nocapture

# libFuzzer under the address sanitizer. The passes are the compiler's own; for the sanitizer RUSTC_BOOTSTRAP lets the stable
# toolchain take the unstable flag. What is found goes below the target folder; an input that failed belongs into
# watcher/fuzz/corpus, where an ordinary test replays it from then on.
fuzz: ## Feed made-up bytes to each target (FUZZ="NAME NAME") for FUZZ_SECONDS (default 60)
	@.ci/setup.sh fuzz
	@host="$$(rustc -vV | sed -n 's/^host: //p')"; \
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='$(FUZZ_FLAGS)' \
	  $(CARGO) build --release --locked --manifest-path watcher/fuzz/Cargo.toml --target "$$host" --target-dir $(FUZZ_DIR); \
	for target in $(FUZZ); do \
	  mkdir -p "$(FUZZ_DIR)/found/$$target"; \
	  echo "fuzz: $$target for $(FUZZ_SECONDS) seconds"; \
	  "$(FUZZ_DIR)/$$host/release/$$target" -max_total_time=$(FUZZ_SECONDS) -timeout=30 -max_len=4096 -verbosity=0 \
	    -print_final_stats=1 -artifact_prefix="$(FUZZ_DIR)/failed-$$target-" \
	    "$(FUZZ_DIR)/found/$$target" "watcher/fuzz/corpus/$$target" 2>&1 | sed '/^#* Recommended/,/^#* End/d'; \
	done

hostile: setup ## Have hostile clients attack the service for HOSTILE_SECONDS (default 60), optimised
	HANDLE_WATCHER_HOSTILE_SECONDS=$(HOSTILE_SECONDS) \
	  $(CARGO) test --release --locked -p handle-watcher --test hostile -- --nocapture

# Half of the bans name a parent that only the peers bring in; that it is absent here is not worth a warning.
check: ## Run every check that is not a test: format, lints, documentation, licences and bans
	@.ci/setup.sh check
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path watcher/fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --features $(FEATURES) --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps --workspace --locked
	$(CARGO) deny --locked --features $(FEATURES) check --allow unused-wrapper bans licenses sources

# Apart from `check`, because it downloads and builds every library that we measure ourselves against. Bans are left
# out: which versions the peers of a bench pull in is not ours to decide.
check-peers: ## Lint the benches with their peers, and check the peers' licences and sources
	@.ci/setup.sh check
	@.ci/setup.sh bench
	$(CARGO) clippy -p handle-watcher-bench --all-targets --features peers --locked -- -D warnings
	$(CARGO) deny --locked --all-features check licenses sources
	$(CARGO) deny --locked --manifest-path watcher/fuzz/Cargo.toml --config watcher/fuzz/deny.toml check licenses sources

bench: ## Measure us beside our peers: BENCH=NAME for one bench, BENCH_SECONDS=S for each subject
	@.ci/setup.sh bench
	$(CARGO) run --release --locked -p handle-watcher-bench --features peers --bin hw-bench -- \
	  $(BENCH) --seconds $(BENCH_SECONDS)
	@[ '$(BENCH)' != all ] || $(CARGO) bench --locked -p handle-watcher-bench --features peers --bench '*'

examples: setup ## Build every example and print the command that runs each
	$(CARGO) build --release --locked -p handle-watcher-examples --all-targets
	@grep -rhoE --include='*.rs' '^//! +`?cargo run [^`]*' examples | sed -E 's|^//! +`?||' | sort -u

doc: setup ## Build the documentation of our crates into target/doc
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --no-deps --workspace --locked

clean: ## Remove everything that was built
	$(CARGO) clean
	rm -rf $(TARGET_DIR)/loom $(TARGET_DIR)/sanitize $(FUZZ_DIR)
