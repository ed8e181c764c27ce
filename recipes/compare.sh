#!/usr/bin/env bash
# Trains several systems with one or more seeds each, all stages, and compares them in one report:
#   DATASET=wmt14.en-de SIZE=base SEEDS="1 2 3" bash recipes/compare.sh recipes/systems/tables-2-3.txt
#   DATA=data-bin/my-corpus SIZE=iwslt MIXERS="transformer_pos shaw rposnet" bash recipes/compare.sh
# A file of systems has a name, a mixer and options of fairseq-train in each line. From outside come, besides what
# docs/recipes.md lists:
#   SEEDS="1 2 3"      one run of every system with each (default: 1)
#   JOBS=4             runs side by side, on equal shares of the GPUs or cores (default: 1)
#   OPTIONS="..."      of fairseq-train, for all systems
#   BASELINES="a b"    the one or two systems that others are compared with (default: the first two, or one)
# Runs that are finished are left alone. Stop it at any time; run again, it goes on where it was.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
recipe compare "$@"
