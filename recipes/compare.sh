#!/usr/bin/env bash
# Trains several systems with one or more seeds each, all stages, and compares them in one report:
#   DATASET=wmt14.en-de SIZE=base SEEDS="1 2 3" bash recipes/compare.sh recipes/systems/tables-2-3.txt
#   DATA=data-bin/my-corpus SIZE=iwslt MIXERS="transformer_pos shaw rposnet" bash recipes/compare.sh
# A file of systems has a name, a mixer and options of fairseq-train in each line. From outside come, besides what
# recipes/lib/stages.sh takes:
#   SEEDS="1 2 3"      one run of every system with each (default: 1)
#   JOBS=4             runs side by side, on as many equal shares of the GPUs or cores (default: 1)
#   OPTIONS="..."      of fairseq-train, for all systems
#   BASELINES="a b"    the one or two systems that others are compared with (default: the first two, or one)
# Runs that are finished are left alone. Stop it at any time; run again, it goes on where it was.
. "$(dirname "${BASH_SOURCE[0]}")/lib/stages.sh"
[ $# -le 1 ] || fail "$# files were given: give one, or none and MIXERS."
systems=${1:+$(realpath -ms -- "$1")}
settle
cd "$root"
. recipes/lib/environment.sh
posnet_environment "$root"
export SIZE UPDATES METRICS POSNET_PARENT=$caller
exec python recipes/lib/compare.py "$data" "$runs" ${systems:+"$systems"}
