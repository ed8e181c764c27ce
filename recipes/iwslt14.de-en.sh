#!/usr/bin/env bash
# IWSLT14 German to English: 160,000 sentence pairs of talks, a Small model (PosNet, Table 3, right).
#   bash recipes/iwslt14.de-en.sh --mixer rposnet --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run iwslt14.de-en --help lists all options, which docs/recipes.md explains. Stop it at any time; run again, it
# goes on where it was.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
