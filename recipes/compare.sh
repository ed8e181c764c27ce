#!/usr/bin/env bash
# Trains several systems with one or more seeds each, all stages, and compares them in one report:
#   bash recipes/compare.sh recipes/systems/tables-2-3.txt --dataset wmt14.en-de --size base --seeds 1,2,3
#   bash recipes/compare.sh --data data-bin/my-corpus --size iwslt --mixers transformer_pos,shaw,rposnet
# A file of systems has a name, a mixer and options of fairseq-train in each line. Runs that are finished are left alone.
# posnet-run compare --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
