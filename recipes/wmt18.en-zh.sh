#!/usr/bin/env bash
# WMT18 English to Chinese (PosNet Tables 2 and 5): 18 million sentence pairs, a vocabulary for each language.
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt18.en-zh.sh [prepare|train|average|precompute|translate|score|all]
set -euo pipefail
dataset=wmt18.en-zh preparable=yes
: "${SIZE:=base}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
