#!/usr/bin/env bash
# WMT18 English to Chinese: 17 million sentence pairs, a vocabulary for each language (PosNet, Tables 2, 5).
#   bash recipes/wmt18.en-zh.sh --mixer rposnet --size base --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run wmt18.en-zh --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
