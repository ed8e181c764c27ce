#!/usr/bin/env bash
# IWSLT14 German to English: 160,000 sentence pairs of talks, a Small model (PosNet, Table 3, right).
#   bash recipes/iwslt14.de-en.sh --mixer rposnet --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run iwslt14.de-en --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
