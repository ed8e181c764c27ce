#!/usr/bin/env bash
# Any dataset that posnet-prepare has made, a corpus of your own for instance:
#   DATA=data-bin/my-corpus MIXER=rposnet SIZE=base SEED=1 bash recipes/corpus.sh [STAGE]
set -euo pipefail
recipe=corpus
data=${DATA:?"corpus: error: DATA is not set: name the folder of a dataset, as DATA=data-bin/my-corpus"}
data=$(realpath -ms "$data")
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
recipe "$@"
