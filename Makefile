# `make` alone lists what there is. CARGO_TARGET_DIR is respected throughout.
CARGO ?= cargo
# How long each fuzz target runs; make's own word, not bash's counter of the same name.
SECONDS ?= 60

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint licences bench fuzz

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | \
		while IFS='|' read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done

setup: ## check that compiler and tools are there; as root on Debian, install them
	bash scripts/setup.sh

demo: setup ## build the program and show blocks arriving before their deadlines
	$(CARGO) run --release -p punctual-cli --bin punctual -- demo

test: setup ## all tests, documentation examples included
	$(CARGO) test --workspace
	cp Cargo.lock examples/own-scheduler/
	CARGO_TARGET_DIR=$${CARGO_TARGET_DIR:-target} $(CARGO) test --manifest-path examples/own-scheduler/Cargo.toml

lint: ## formatting, clippy and documentation, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --workspace

licences: ## licences of all dependencies against deny.toml
	python3 scripts/licences.py

bench: ## micro-benchmarks
	$(CARGO) bench --workspace

fuzz: ## fuzz every parser, SECONDS=300 each (default 60)
	bash fuzz/run.sh $(SECONDS)
