#!/usr/bin/env bash
# WMT14 English to German (PosNet Tables 2, 4 and 6; Table 3, left, with SIZE=big): 4 million sentence pairs.
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt14.en-de.sh [prepare|train|average|precompute|translate|score|all]
set -euo pipefail
dataset=wmt14.en-de preparable=yes
: "${SIZE:=base}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
