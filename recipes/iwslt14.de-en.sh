#!/usr/bin/env bash
# IWSLT14 German to English (PosNet Table 3, right): 160,000 sentence pairs of talks, a Small model.
#   MIXER=rposnet SIZE=iwslt SEED=1 bash recipes/iwslt14.de-en.sh [prepare|train|average|precompute|translate|score|all]
set -euo pipefail
dataset=iwslt14.de-en preparable=yes
: "${SIZE:=iwslt}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
