#!/usr/bin/env bash
# What only a GPU can show, in at most 20 minutes on an H100: laws and kernels, training in fp16 and bf16, speed, memory and
# waits, in one report (gpu_check/report.md, and the figures in gpu_check/results.json).
#   bash recipes/gpu_check.sh                  on this machine's GPU
#   bash recipes/gpu_check.sh --again          also the sections that have passed before
#   bash recipes/gpu_check.sh --simulated      without a GPU: small sizes, to test the check itself
# Stop it at any time; run again, it goes on with the sections that have not passed. Exit code 1: a section failed.
set -euo pipefail
recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$recipes/lib/recipe.sh"
. "$recipes/lib/environment.sh"
posnet_environment "${recipes%/*}"
exec python -m posnet_fairseq.bench.gpu_check "$@"
