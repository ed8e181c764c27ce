#!/usr/bin/env bash
# IWSLT14 German to English: 160,000 sentence pairs of talks, a Small model (PosNet, Table 3, right).
#   MIXER=rposnet SIZE=iwslt SEED=1 bash recipes/iwslt14.de-en.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: docs/recipes.md
# and recipes/hyperparameters.yaml. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
DATASET=${DATASET:-iwslt14.de-en} SIZE=${SIZE:-iwslt} recipe corpus "$@"
