#!/usr/bin/env bash
# WMT18 English to Chinese: 17 million sentence pairs, a vocabulary for each language (PosNet, Tables 2, 5).
#   MIXER=rposnet SIZE=base SEED=1 bash recipes/wmt18.en-zh.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: recipes/lib/stages.sh,
# recipes/hyperparameters.sh. Stop it at any time; run again, it goes on where it was.
: "${DATASET:=wmt18.en-zh}" "${SIZE:=base}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
