#!/usr/bin/env bash
# Any dataset that posnet-prepare makes or has made, a corpus of your own for instance, from data to scores.
#   bash recipes/corpus.sh --data data-bin/my-corpus --mixer rposnet --size base --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run corpus --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
