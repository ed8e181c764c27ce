#!/usr/bin/env bash
# Multi30k, English to French: 29,000 descriptions of images, a model of 2.6 million parameters (Wu et al., 2021).
#   MIXER=rposnet SEED=1 CPUS=1 bash recipes/multi30k.en-fr.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: docs/recipes.md
# and recipes/hyperparameters.yaml. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
DATASET=${DATASET:-multi30k.en-fr} SIZE=${SIZE:-multi30k} recipe corpus "$@"
