#!/usr/bin/env bash
# WMT14 English to French (PosNet Table 2): 36 million sentence pairs.
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt14.en-fr.sh [prepare|train|average|precompute|translate|score|all]
set -euo pipefail
dataset=wmt14.en-fr preparable=yes
: "${SIZE:=base}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
