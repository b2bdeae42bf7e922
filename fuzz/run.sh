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
    # libFuzzer begins with a few bytes and lengthens inputs as it runs. These two run so few of them that theirs would stay tiny.
    case $target in
        session | multipath) lengths=-len_control=0 ;;
        *) lengths= ;;
    esac
    cargo fuzz run -s none "$target" -- -max_total_time="$seconds" -max_len=4096 ${lengths:+"$lengths"} -timeout=5 -rss_limit_mb=512
done
