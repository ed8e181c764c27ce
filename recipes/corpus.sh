#!/usr/bin/env bash
# Any dataset that posnet-prepare makes or has made, a corpus of your own for instance, from data to scores:
#   DATA=data-bin/my-corpus MIXER=rposnet SIZE=base SEED=1 bash recipes/corpus.sh [STAGE ...]
#   DATASET=quickstart.en-de SIZE=tiny bash recipes/corpus.sh
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: docs/recipes.md
# and recipes/hyperparameters.yaml. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
recipe corpus "$@"
