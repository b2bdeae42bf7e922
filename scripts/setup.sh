#!/usr/bin/env bash
# Makes sure that what the build needs is there: a C compiler (for the cryptography), make, git, python3 (for the
# licence check) and Rust. Installs what is missing if it may (root on Debian or Ubuntu), else says what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
have() { command -v "$1" >/dev/null 2>&1; }
have cc || missing+=(gcc libc6-dev)
have make || missing+=(make)
have git || missing+=(git)
have python3 || missing+=(python3)

if ((${#missing[@]})); then
    if [[ $(id -u) -eq 0 ]] && have apt-get; then
        echo "installing: ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq </dev/null
        apt-get install -y --no-install-recommends "${missing[@]}" </dev/null
    else
        echo "Missing: ${missing[*]}. Install them, on Debian or Ubuntu with:" >&2
        echo "    sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
fi

wanted=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
if [[ -z $wanted ]]; then
    echo "Cargo.toml: no rust-version" >&2
    exit 1
fi
if ! have cargo && [[ -x ${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo ]]; then
    echo "Rust is installed but not in PATH; run:" >&2
    echo "    . \"${CARGO_HOME:-${HOME:-/root}/.cargo}/env\"" >&2
    exit 1
fi
if ! have cargo; then
    echo "Rust $wanted or newer is missing. Install it with rustup, see https://rustup.rs:" >&2
    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default" >&2
    exit 1
fi
found=$(cargo --version | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
if [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) != "$wanted" ]]; then
    echo "Rust $found is older than $wanted. Update it:" >&2
    echo "    rustup update stable" >&2
    exit 1
fi
for component in rustfmt clippy; do
    program=cargo-${component/rustfmt/fmt}
    if ! "$program" --version >/dev/null 2>&1; then
        if ! have rustup || ! rustup component add "$component" </dev/null; then
            echo "$component is missing. Install it:" >&2
            echo "    rustup component add $component" >&2
            exit 1
        fi
    fi
done
echo "ready: Rust $found, $(cc --version | sed -n 1p)"
