#!/usr/bin/env bash
# WMT18 English to Chinese: 17 million sentence pairs, a vocabulary for each language (PosNet, Tables 2, 5).
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt18.en-zh.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: docs/recipes.md
# and recipes/hyperparameters.yaml. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
DATASET=${DATASET:-wmt18.en-zh} SIZE=${SIZE:-base} recipe corpus "$@"
