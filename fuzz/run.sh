#!/bin/sh
# Runs every fuzz target for SECONDS each; fails at the first finding.
# usage: fuzz/run.sh SECONDS
set -eu

seconds=${1:?usage: fuzz/run.sh SECONDS}
cd "$(dirname "$0")/.."
# cargo-fuzz passes unstable flags; this makes a stable compiler take them.
export RUSTC_BOOTSTRAP=1

for target in $(cargo fuzz list); do
    echo "== $target: $seconds s"
    cargo fuzz run -s none "$target" -- -max_total_time="$seconds" -max_len=4096 -timeout=5 -rss_limit_mb=512
done
