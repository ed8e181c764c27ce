#!/usr/bin/env bash
# Language models after the Translution paper (Fan et al., 2025, Table 7): trains a GPT with self-attention, one with
# α-Translution and one with Translution on the same text, one after the other, and prints their perplexities side by
# side.
#
#   bash recipes/lm.sh                          the English side of the quickstart's text
#   bash recipes/lm.sh my.txt                   a text file of your own; its end is held out for validation and test
#   bash recipes/lm.sh --updates 100            fewer updates: faster and worse
#   bash recipes/lm.sh --size b --seed 2        GPT-A, -B or -C; another seed
#   bash recipes/lm.sh --mixers attention,rposnet        any mixers that may stand in a decoder
#
# posnet-run lm --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
