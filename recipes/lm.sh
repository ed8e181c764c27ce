#!/usr/bin/env bash
# Language models after the Translution paper (Fan et al., 2025, Table 7): trains a GPT with self-attention, one with
# α-Translution and one with Translution on the same text, one after the other, and prints their perplexities side by
# side. Stop it at any time; run again, it goes on where it was.
#
#   bash recipes/lm.sh                          the English side of the quickstart's text
#   bash recipes/lm.sh my.txt                   a text file of your own; its end is held out for validation and test
#   LM_UPDATES=100 bash recipes/lm.sh           fewer updates: faster and worse
#   LM_SIZE=b LM_SEED=2 bash recipes/lm.sh      GPT-A, -B or -C; another seed
#   LM_MIXERS="attention rposnet" bash recipes/lm.sh     any mixers that may stand in a decoder
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
recipe lm "$@"
