#!/usr/bin/env bash
# Multi30k, English to French: 29,000 descriptions of images, a model of 2.6 million parameters (Wu et al., 2021).
#   bash recipes/multi30k.en-fr.sh --mixer rposnet --seed 1 --cpus 1 [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all).
# posnet-run multi30k.en-fr --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
