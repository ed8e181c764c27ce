#!/usr/bin/env bash
# Linter and quick tests, 4 to 6 minutes on 2 cores; makes the environment if there is none.
# --all: all tests, thorough and slow ones too, as CI runs them. The type checker is one: tests/contracts/test_types.py.
# Further arguments go to pytest: bash tests/run.sh -k rposnet, bash tests/run.sh --all tests/recipes
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/lib/help.sh"
cd "$root"
. recipes/lib/environment.sh
posnet_environment "$root" dev
export OMP_NUM_THREADS=1
chosen=()
ruff check .
ruff format --check .
if [ "${1:-}" = --all ]; then
    shift
    chosen=(-m "")
fi
# Two files at a time, on two cores; -n 0 turns it off, as for a debugger. In the order of
# tests/conftest.py, long files first: by default those with few tests would come last, which take longest.
pytest -n 2 --dist loadfile --no-loadscope-reorder "${chosen[@]}" "$@"
