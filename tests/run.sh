#!/usr/bin/env bash
# Linter and tests. Makes the environment if there is none. Arguments go to pytest: bash tests/run.sh -k rposnet
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
. recipes/lib/environment.sh
posnet_environment "$root"
export OMP_NUM_THREADS=1
ruff check .
ruff format --check .
# Two files at a time, on two cores; -n 0 turns it off, as for a debugger. In the order of their names: by default those
# with few tests would come last, which take longest.
pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
