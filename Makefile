# What a developer and CI run. `check` changes no file; `test` starts every service it needs.
CARGO ?= cargo
export CARGO_TERM_COLOR ?= never

.PHONY: check fmt clippy tidy build services test demo bench soak

check: fmt clippy tidy

fmt:
	$(CARGO) fmt --all --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

tidy:
	$(CARGO) test -p xtask --locked --quiet

# Everything that tests run: libraries, test binaries, the server, the examples.
build:
	$(CARGO) build --workspace --all-targets --locked

# System packages and Python modules of the tests with real clients.
services:
	./integration/services.sh

# The second line repeats suites over a TiKV-protocol cluster of three stores whose regions never rest.
test: services build
	$(CARGO) test --workspace --locked
	TIDEMILL_TEST_STORE=cluster $(CARGO) test --workspace --locked --test it -- \
		modes:: sessions:: tidb_ changes:: reading:: leases:: faults:: sweeping:: fills:: two_processes --skip kills:: --skip client::

# The main job on real input; ends within 45 seconds after the build.
demo:
	$(CARGO) run -p tidemill --locked -- demo

bench:
	$(CARGO) bench -p store -p operators -p tikv-server -p tidemill --locked

# The long versions of the tests: more cases, more kills, more seeds. Each test that has one looks whether
# TIDEMILL_SOAK is set, whatever its value; PROPTEST_CASES is for properties that state no number of cases.
soak: services build
	TIDEMILL_SOAK=1 PROPTEST_CASES=2000 $(CARGO) test --workspace --locked
