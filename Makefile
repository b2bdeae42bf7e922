# `make` alone lists what there is. CARGO_TARGET_DIR is respected throughout.
CARGO ?= cargo
# How long each fuzz target runs; make's own word, not bash's counter of the same name.
SECONDS ?= 60
# What else to tell the chaos run: CHAOS='--only killed --json chaos.json'.
CHAOS ?=
# How many random worlds, and the number of the first.
WORLDS ?= 100000
FROM ?= 1000

.DEFAULT_GOAL := help
.PHONY: help setup demo test example lint licences crates package bench fuzz chaos links gateway vpn soak sparse fades jitter worlds

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: ## check that compiler and tools are there; as root on Debian, install them
	bash scripts/setup.sh

demo: setup ## build the program and show blocks arriving before their deadlines
	$(CARGO) run --release -p punctual-cli --bin punctual -- demo

test: setup ## all tests, documentation examples included
	$(CARGO) test --workspace

# With the versions of the workspace, and what is built of them already.
EXAMPLE = cp Cargo.lock examples/own-scheduler/ && CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target} $(CARGO)

example: ## the example of a user's own scheduler: build it and run its test
	$(EXAMPLE) test --manifest-path examples/own-scheduler/Cargo.toml

lint: ## formatting, clippy and documentation, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(EXAMPLE) clippy --manifest-path examples/own-scheduler/Cargo.toml --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --workspace

licences: ## licences of all dependencies against deny.toml
	python3 scripts/licences.py

crates: ## every crate as it would be published, built from that alone
	for crate in crates/*/; do cmp LICENSE-MIT $$crate/LICENSE-MIT && cmp LICENSE-APACHE $$crate/LICENSE-APACHE || exit 1; done
	$(CARGO) package --workspace --allow-dirty

package: setup ## a static program and a Debian package, in target/package
	bash scripts/package

bench: ## micro-benchmarks
	$(CARGO) bench --workspace --features punctual-proto/fuzzing

fuzz: ## fuzz every parser, SECONDS=300 each (default 60)
	bash fuzz/run.sh $(SECONDS)

gateway: setup ## ffmpeg and SRT through the gateway over two bad links; needs ffmpeg
	$(CARGO) build --release -p punctual-cli
	python3 scripts/gateway

chaos: setup ## as root: live video while links are unplugged in every way, 10 and 1,000 senders, SIGTERM everywhere
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/chaos $(CHAOS)

# What else to tell it: LINKS='--loss 0,5 --seconds 10'.
LINKS ?=
links: setup ## as root: DMTP's two paths between namespaces; over them Punctual, gateways, multipath QUIC, MPTCP, TCP, SRT
	$(CARGO) build --release -p punctual-cli --bin punctual --example mpquic
	python3 scripts/links $(LINKS)

# What else to tell it: VPN='--only tcp --control bbr'.
VPN ?=
vpn: setup ## as root: one TCP flow in a VPN over two links of 20 Mbit/s, ping, a link's death, and over veth
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/vpn $(VPN)

# What else to tell it: SPARSE='--first 400 --worst 10'.
SPARSE ?=
sparse: setup ## who has little to send, over 400 random paths that change or die
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/sparse $(SPARSE)

# What else to tell it: FADES='--first 2000 --worst 10'.
FADES ?=
fades: setup ## who sends over 200 random paths that are much too slow for a while
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/trouble fades $(FADES)

# What else to tell it: JITTER='--first 2000 --worst 10'.
JITTER ?=
jitter: setup ## who sends over 200 random paths on which packets are late by chance
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/trouble jitter $(JITTER)

# Which, and what else to tell it: TWISTS='slow-back thin-back --first 40000 --count 50'.
TWISTS ?= all
twists: setup ## the gauntlet's cells, each changed in one respect: jitter, long ways back, tiny messages, …
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/twist $(TWISTS)

# How long; and what else to tell it: SOAK='--mbit 20'.
MINUTES ?= 60
SOAK ?=
soak: setup ## as root: a VPN and a tunnel for MINUTES=60 over links that come and go; nothing may grow
	$(CARGO) build --release -p punctual-cli --bin punctual
	python3 scripts/soak --minutes $(MINUTES) $(SOAK)

FAILED = $${CARGO_TARGET_DIR:-$(CURDIR)/target}/failed-worlds.txt
worlds: ## WORLDS=100000 random worlds from number FROM=1000 on; those that fail are kept in target/failed-worlds.txt
	PUNCTUAL_WORLDS=$(WORLDS) PUNCTUAL_FROM=$(FROM) PUNCTUAL_FAILED=$(FAILED) \
		$(CARGO) test --release -p punctual-sim --test exactly_once -- --ignored --nocapture any_number_of_worlds
