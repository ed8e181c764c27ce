#!/usr/bin/env bash
# WMT14 English to French: 36 million sentence pairs (PosNet, Table 2).
#   bash recipes/wmt14.en-fr.sh --mixer rposnet --size base --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run wmt14.en-fr --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
