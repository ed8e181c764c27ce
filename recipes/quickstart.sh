#!/usr/bin/env bash
# Trains a Transformer and rPosNet side by side on real text (English to German, interface texts of open-source
# programs), one thread each, and compares them: 12 to 25 minutes on two cores, with the installation. Needs no GPU.
# Stop it at any time; run again, it goes on where it was.
#
#   bash recipes/quickstart.sh
#   UPDATES=300 bash recipes/quickstart.sh                                    shorter and worse
#   MIXERS="transformer_pos translution" bash recipes/quickstart.sh           others; the first is the baseline
#   SEEDS="1 2 3" bash recipes/quickstart.sh                                  three runs of each
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
recipe quickstart "$@"
