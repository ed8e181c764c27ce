#!/usr/bin/env bash
# Trains a Transformer and rPosNet side by side on real text (English to German, interface texts of open-source
# programs), one thread each, and compares them: 12 to 25 minutes on two cores, with the installation. Needs no GPU.
#
#   bash recipes/quickstart.sh
#   bash recipes/quickstart.sh --updates 300                                  shorter and worse
#   bash recipes/quickstart.sh --mixers transformer_pos,translution           others; the first is the baseline
#   bash recipes/quickstart.sh --seeds 1,2,3                                  three runs of each
#
# posnet-run quickstart --help lists all options (docs/recipes.md). Stop it at any time; the same command continues.
. "$(dirname "${BASH_SOURCE[0]}")/lib/recipe.sh"
