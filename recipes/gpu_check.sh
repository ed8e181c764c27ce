#!/usr/bin/env bash
# What only a GPU can show, in about 20 minutes: tests of every mixer and kernel on it, training in bf16 and fp16, with
# two processes if there are two GPUs, and benchmarks, in one report (runs/gpu_check/report.md). Stop it at any time;
# run again, it goes on with the sections that have not passed.
#
#   bash recipes/gpu_check.sh
#   bash recipes/gpu_check.sh --again            all sections once more
#   bash recipes/gpu_check.sh --simulated        without a GPU: tests this check itself, on a CPU
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/lib/help.sh"
. "$root/recipes/lib/environment.sh"
posnet_environment "$root" dev
exec python -m posnet_fairseq.bench.gpu_check "$@"
