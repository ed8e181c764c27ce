#!/usr/bin/env bash
# WMT14 English to French: 36 million sentence pairs (PosNet, Table 2).
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt14.en-fr.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: docs/recipes.md
# and recipes/hyperparameters.yaml. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
DATASET=${DATASET:-wmt14.en-fr} SIZE=${SIZE:-base} recipe corpus "$@"
