#!/usr/bin/env bash
# WMT14 English to German: 4 million sentence pairs (PosNet, Tables 2, 4, 6; with --size big Table 3, left).
#   bash recipes/wmt14.en-de.sh --mixer rposnet --size base --seed 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run wmt14.en-de --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
