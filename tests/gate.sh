#!/usr/bin/env bash
# The gate, which `./pareto.sh test` runs: stages from cheap to dear, each only if those before it held.
#
#     --chaos    the tests run on a disturbed machine: see tests/chaos.py
set -euo pipefail

python=.venv/bin/python
tests=("$python" -m)
[ "${1:-}" != --chaos ] || tests+=(tests.chaos -- "$python" -m)
tests+=(pytest -q -p no:cacheprovider)
logs=$TMPDIR/stages
mkdir -p "$logs"
beside=()
trap 'for each in "${beside[@]}"; do kill -- "-$each" 2>/dev/null || true; done' EXIT

stage() { printf '\n== %d:%02d  %s\n' "$((SECONDS / 60))" "$((SECONDS % 60))" "$1"; }

# begin NAME COMMAND...: beside the stages that follow, in a process group of its own, its output in a file.
begin() {
    setsid "${@:2}" >"$logs/$1" 2>&1 </dev/null &
    beside+=($!)
    eval "$1=$!"
}

# joined NAME: wait for it; its closing line, or all that it printed where it failed.
joined() {
    if wait "${!1}"; then
        stage "$1: $(tail -n 1 "$logs/$1")"
    else
        cat "$logs/$1"
        stage "$1 failed"
        exit 1
    fi
}

# Kept as on a user's machine: else each program that a test starts compiles the packages anew.
unset PYTHONDONTWRITEBYTECODE
"$python" -m compileall -q analysis pareto partitions

stage lint
.venv/bin/ruff check
.venv/bin/ruff format --check
begin types nice .venv/bin/mypy

stage unit
# One more than there are cores: some of the time a test waits. In chunks that get smaller: where workers steal from
# each other, the one with the dear tests was left alone with them.
"${tests[@]}" tests/unit -n "$(($(nproc) + 1))" --dist load --maxfail 10
joined types

# Beside what waits much. One emulated core, by its own instructions' clock: nothing here can change what it finds.
CHAOS_LOAD=1 begin guest "${tests[@]}" tests/vm

# What needs a whole machine is run again once, and named: FLAKY. Long files first, not those of most tests.
stage real
"${tests[@]}" tests/integration tests/lab tests/faults --reruns 1 \
    -n "$(($(nproc) + 2))" --dist loadfile --no-loadscope-reorder
joined guest
