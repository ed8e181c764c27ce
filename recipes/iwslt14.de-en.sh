#!/usr/bin/env bash
# IWSLT14 German to English: 160,000 sentence pairs of talks, a Small model (PosNet, Table 3, right).
#   MIXER=rposnet SIZE=iwslt SEED=1 bash recipes/iwslt14.de-en.sh [STAGE ...]
# STAGE: prepare, train, average, precompute, translate, score (default: all). More settings: recipes/lib/stages.sh,
# recipes/hyperparameters.sh. Stop it at any time; run again, it goes on where it was.
: "${DATASET:=iwslt14.de-en}" "${SIZE:=iwslt}"
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
