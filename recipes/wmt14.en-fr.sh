#!/usr/bin/env bash
# WMT14 English to French: 36 million sentence pairs (PosNet, Table 2).
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt14.en-fr.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: recipes/lib/stages.sh,
# recipes/hyperparameters.sh. Stop it at any time; run again, it goes on where it was.
: "${DATASET:=wmt14.en-fr}" "${SIZE:=base}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
