# `make demo` and `make test` are all a newcomer needs: Rust, Python >= 3.10 and a C compiler.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run side by side, more of them than there are cores: they start parties and wait for them.
WORKERS ?= 4
# Tests run side by side: threads of NumPy and PyTorch in each would wait for each other.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Some tests of parties wait for most of their time.
THREADS ?= $(shell n=$$(nproc 2>/dev/null || echo 1); echo $$((n > 8 ? n : 8)))
export PIP_DISABLE_PIP_VERSION_CHECK = 1

SOURCES := $(shell find crates proto python/covey -type f -not -name '*.so' -not -name '*.pyc' 2>/dev/null) \
	Cargo.toml pyproject.toml README.md

.PHONY: help demo test lint training training-accuracy lines operations kills train-kills store-kills bad-input fuzz fuzz-replay abuse adversary onnx-vectors variants accuracies conformance deny instruction-sets docs-commands bounds constant-time miri asan soak sbom random-modules random-training lpn lattice-security new-user nightly clean

help:
	@echo "make demo   a private prediction by three parties on this machine"
	@echo "make test   everything that must hold"
	@echo "make lint   formatting and static checks"
	@echo "make lines  lines of product code by crate; AGAINST=revision, JSON=1"
	@echo "make lpn    what attacks on the noise problems of oblivious transfer cost; fails below 2^128"
	@echo "make lattice-security  what attacks on the parameters of lattice encryption cost; fails below 2^128"
	@echo "make kills  each party killed at 20 random moments"
	@echo "make train-kills  training runs whose parties and client are killed; RUNS=100, PROTOCOL=trio"
	@echo "make store-kills  processes killed while they use what is in store; RUNS=1000 of each kind"
	@echo "make bad-input  every mistake a user can make, over every protocol"
	@echo "make training  steps of LeNet in every protocol against the specification, bit for bit; STEPS=50, BATCH=8, JSON=1"
	@echo "make training-accuracy  real data trained privately and in PyTorch, their accuracies compared; SEEDS=10, CASES=cnn,mlp, MNIST=folder, JSON=1"
	@echo "make bounds  random and adversarial models against their bounds; MODELS=5000 in the clear, PRIVATE=500 privately"
	@echo "make random-modules  random PyTorch modules against themselves; COUNT=1000, SEED=n"
	@echo "make random-training training of random PyTorch modules against PyTorch's; COUNT=1000, SEED=n"
	@echo "make fuzz   damaged files and messages for every parser; SECONDS=60 for each"
	@echo "make abuse  parties that serve two clients, flooded by strangers and a third; SECONDS=60 for all attacks, JSON=1"
	@echo "make adversary PROTOCOL=quad  a party that cheats, in every message and in named ways; RUNS=5000 messages, RING=64, SHORT=1, JSON=1"
	@echo "make onnx-vectors  the test vectors of the onnx package, through compiler and interpreter"
	@echo "make variants  networks made for private inference, in every form and protocol, against the specification; SIZE=64"
	@echo "make accuracies  networks trained in every form and thinned, next to what they cost; DATA=folder of Fashion-MNIST"
	@echo "make conformance  the protocols' tests in full, on several threads: larger volumes, wide programs and more rings over more transports"
	@echo "make deny   licences, sources and advisories of what a build takes in, by cargo deny"
	@echo "make instruction-sets  kernels and protocols without AMX, without AVX-512, and in the portable build"
	@echo "make constant-time  branches and addresses that depend on secrets, by Valgrind and by timing"
	@echo "make miri   undefined behaviour in rings and portable kernels, interpreted"
	@echo "make asan   memory errors in the kernels under every instruction set"
	@echo "make soak   the digits network for QUERIES=100000 predictions; PROTOCOL=trio: memory must not grow"
	@echo "make operations  two clients for MINUTES=30 while every key is replaced, models are deleted and the store is full"
	@echo "make sbom   what a build is made of, as CycloneDX"
	@echo "make new-user  README and every page in docs, followed literally from a copy with nothing built; FOLDER=f keeps the copy"
	@echo "make nightly  the long campaigns one after another, hours; a summary says which failed"
	@echo "make clean  remove what was built"

# The command `covey`, built as a release and installed as pip would install it. Skipped while nothing has changed.
$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet .
	touch $@

# The same with what the tests need.
$(VENV)/ready: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet '.[test]'
	touch $(VENV)/installed $(VENV)/needed $@

# What the package and its tests need, without the package.
$(VENV)/needed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python python/tests/built.py requirements > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet -r $(VENV)/requirements.txt
	touch $@

demo: $(VENV)/installed
	$(BIN)/covey demo --protocol trio

# Python's tests run on the package as it lies in the sources, with an extension that cargo builds with the tests of Rust. With
# INSTALLED=1 they run on what is installed, a release, as in CI.
DEBUG = $(or $(CARGO_TARGET_DIR),target)/debug
PACKAGE := $(if $(INSTALLED),,$(CURDIR)/target/python)
PYTEST = $(if $(PACKAGE),PYTHONPATH=$(PACKAGE)) $(ONE_THREAD) $(BIN)/pytest -o pythonpath=

test:
	mkdir -p target
	@# Packages come while cargo compiles. Without examples, which clippy compiles; with the extension, which is no test.
	$(MAKE) --no-print-directory $(VENV)/$(if $(INSTALLED),ready,needed) & packages=$$!; \
		cargo build --workspace --locked --tests $(if $(PACKAGE),--lib); wait $$packages
	$(if $(PACKAGE),$(BIN)/python python/tests/built.py place $(DEBUG)/lib_core.so $(PACKAGE))
	{ RUST_TEST_THREADS=$(THREADS) cargo test --workspace --locked --tests && cargo test --workspace --locked --doc; } \
		2>&1 | tee target/test-rust.log
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder 2>&1 | tee target/test-python.log
	@# In a process of its own, and 5 where TensorFlow is not installed: nothing was collected.
	COVEY_TENSORFLOW=1 $(PYTEST) python/tests/test_tensorflow.py 2>&1 \
		| tee target/test-tensorflow.log || test $$? -eq 5
	@awk '/^test result:/ { passed += $$4; failed += $$6; ignored += $$8 } \
		END { printf "\nRust:   %d passed, %d failed, %d ignored\n", passed, failed, ignored }' target/test-rust.log
	@tail -n 1 target/test-python.log | sed 's/^/Python: /'
	@tail -n 1 target/test-tensorflow.log | sed 's/^/TensorFlow: /'

lint: $(VENV)/needed
	cargo fmt --all --check
	rustfmt --check --edition 2024 crates/operators/src/*.rs
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/ruff check python examples
	$(BIN)/ruff format --check python
	$(BIN)/mypy --python-executable $(BIN)/python
	$(BIN)/python python/tests/constant_seeds.py
	$(BIN)/python python/tests/style.py

lines:
	@$(PYTHON) python/tests/lines.py $(if $(AGAINST),--against $(AGAINST)) $(if $(JSON),--json)

lpn:
	$(PYTHON) crates/ot/tools/lpn.py --simulate

lattice-security:
	$(PYTHON) crates/rlwe/tools/security.py

kills: $(VENV)/installed
	$(BIN)/python python/tests/kills.py

train-kills: $(VENV)/ready
	$(BIN)/python python/tests/train_kills.py --runs $(if $(filter command line,$(origin RUNS)),$(RUNS),100) \
		--protocol $(or $(PROTOCOL),trio)

RUNS ?= 1000
store-kills: $(VENV)/installed
	$(BIN)/python python/tests/store_kills.py --runs $(RUNS)

bad-input: $(VENV)/ready
	$(BIN)/python python/tests/bad_input.py

MODELS ?= 5000
PRIVATE ?= 500
bounds: $(VENV)/ready
	$(BIN)/python python/tests/bounds.py --models $(MODELS) --private $(PRIVATE) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json)

# Needs torch.
random-modules: $(VENV)/ready
	$(ONE_THREAD) $(BIN)/python python/tests/random_modules.py --programs --count $(or $(COUNT),1000) $(if $(SEED),--seed $(SEED))
	$(ONE_THREAD) $(BIN)/python python/tests/random_modules.py --programs --onnx --count $(or $(COUNT),1000) $(if $(SEED),--seed $(SEED))

random-training: $(VENV)/ready
	$(ONE_THREAD) $(BIN)/python python/tests/random_training.py --programs --count $(or $(COUNT),1000) $(if $(SEED),--seed $(SEED))

# Every parser for SECONDS each, after 10,000 files damaged as a bad disk would. SEED=n repeats a run's random choices.
SECONDS ?= 60
# Together with the tests: by themselves, binaries have dependencies with fewer features, and all would be compiled again.
BINARIES = cargo build --quiet --workspace --locked --tests --bins
FUZZ = $(DEBUG)/covey-fuzz

fuzz: $(VENV)/ready
	$(BINARIES)
	$(FUZZ) corrupt --files 10000 $(if $(SEED),--seed $(SEED))
	$(FUZZ) run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

fuzz-replay: $(VENV)/ready
	$(BINARIES)
	$(FUZZ) replay $(TARGET) $(FILE)

# The parties are those that cargo builds beside the driver.
abuse:
	$(BINARIES)
	$(DEBUG)/covey-abuse --seconds $(SECONDS) $(if $(JSON),--json)

# Built with debug assertions, as the tests are: no release can leave out checks.
adversary:
	$(BINARIES)
	$(DEBUG)/adversary \
		--protocol $(or $(PROTOCOL),quad) --runs $(RUNS) $(if $(SEED),--seed $(SEED)) $(if $(RING),--ring $(RING)) $(if $(SHORT),--short) $(if $(JSON),--json)

onnx-vectors: $(VENV)/ready
	$(BIN)/python python/tests/onnx_vectors.py --details target/onnx-vectors.txt

SIZE ?= 64
variants: $(VENV)/ready
	$(BIN)/python python/tests/variants.py --size $(SIZE) $(if $(PROTOCOL),--protocols $(PROTOCOL)) $(if $(JSON),--json)

# Needs torch and matplotlib. Fashion-MNIST is where Debian's package dataset-fashion-mnist puts it. What was trained is kept.
DATA ?= /usr/share/datasets/fashion-mnist
accuracies: $(VENV)/ready
	$(BIN)/python examples/accuracies.py --data $(DATA)

# All tests of the protocols in full, on several threads: also those that `make test` ignores, with larger volumes, wide programs, more rings
# over more transports, longer enumerations, and noise of millions of coefficients.
conformance:
	COVEY_IN_FULL=1 COVEY_THREADS=5 cargo test --release --locked -p covey-conformance -p covey-protocols -p covey-rlwe --lib --tests -- --include-ignored

# Advisories come from a repository on GitHub.
deny:
	@cargo deny --version >/dev/null 2>&1 || { echo "cargo deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	cargo deny check

instruction-sets:
	for isa in avx512 avx2; do COVEY_MAX_ISA=$$isa cargo test --locked -p covey-kernels -p covey-ot -p covey-conformance; done
	cargo test --locked -p covey-kernels -p covey-ot -p covey-conformance --features covey-kernels/portable-only

# Secrets count as uninitialised: Valgrind's memory checker reports what branches or indexes on them. It knows no AVX-512, AMX
# and VAES; kernels of these are timed.
MEASUREMENTS ?= 1000000
constant-time:
	@command -v valgrind >/dev/null || { echo "Valgrind is missing: apt-get install valgrind" >&2; exit 1; }
	CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --quiet --release --locked -p covey-conformance \
		--features constant-time --bin constant-time
	for isa in avx2 portable; do COVEY_MAX_ISA=$$isa valgrind --quiet --error-limit=no \
		--suppressions=crates/conformance/constant-time.supp \
		--log-file=target/constant-time-$$isa.log target/release/constant-time; done
	cargo run --quiet --release --locked -p covey-kernels --example timing -- --measurements $(MEASUREMENTS)

# Undefined behaviour: the portable paths interpreted, at small sizes.
miri:
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "Miri is missing: rustup toolchain install nightly --component miri,rust-src" >&2; exit 1; }
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-strict-provenance" PROPTEST_CASES=4 \
		cargo +nightly miri test --locked -p covey-ring --lib
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-strict-provenance" \
		cargo +nightly miri test --locked -p covey-kernels --features portable-only --tests small_sizes

# Memory errors: the kernels' tests under every instruction set of this processor, each access checked.
asan:
	@cargo +nightly --version >/dev/null 2>&1 || { echo "a nightly Rust is missing: rustup toolchain install nightly" >&2; exit 1; }
	RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=1 \
		cargo +nightly test --locked -p covey-kernels --tests --target $(shell rustc -vV | sed -n 's/host: //p') --target-dir target/asan

QUERIES ?= 100000
training: $(VENV)/ready
	$(BIN)/python python/tests/training_exact.py --steps $(or $(STEPS),50) --batch $(or $(BATCH),8) $(if $(JSON),--json)

# Needs torch and scikit-learn. MNIST is a folder of its files, without which that case is skipped.
training-accuracy: $(VENV)/ready
	$(ONE_THREAD) $(BIN)/python python/tests/training_accuracy.py --seeds $(or $(SEEDS),10) --protocol $(or $(PROTOCOL),trio) \
		$(if $(CASES),--cases "$(CASES)") $(if $(MNIST),--mnist $(MNIST)) $(if $(JSON),--json)

soak: $(VENV)/installed
	$(BIN)/python python/tests/soak.py --queries $(QUERIES) $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(if $(JSON),--json)

MINUTES ?= 30
operations: $(VENV)/ready
	$(BIN)/python python/tests/operations.py --minutes $(MINUTES) $(if $(PROTOCOL),--protocol $(PROTOCOL)) $(if $(JSON),--json)

sbom: $(VENV)/ready
	$(BIN)/python python/tests/sbom.py --output target/covey.cdx.json

docs-commands: $(VENV)/ready
	$(BIN)/python python/tests/docs_commands.py

new-user:
	$(PYTHON) python/tests/new_user.py $(if $(FOLDER),--folder $(FOLDER)) $(PAGES)

# One that fails does not keep the others from running. Tools that are missing (Valgrind, a nightly Rust, cargo deny, PyTorch) count as failures.
NIGHTLY := lint test kills train-kills store-kills bad-input bounds random-modules random-training fuzz abuse adversary onnx-vectors variants conformance instruction-sets docs-commands \
	constant-time miri asan soak training training-accuracy lpn lattice-security deny operations new-user
nightly:
	@export COVEY_INTERRUPTS=20; mkdir -p target/nightly; failed=""; for goal in $(NIGHTLY); do \
		start=$$SECONDS; echo "== $$goal"; \
		if $(MAKE) --no-print-directory $$goal > target/nightly/$$goal.log 2>&1; then said=passed; \
		else said="FAILED, see target/nightly/$$goal.log"; failed="$$failed $$goal"; fi; \
		echo "   $$((SECONDS - start)) s, $$said"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

clean:
	rm -rf target $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
