#!/usr/bin/env bash
# The first five minutes, made of twelve: trains a Transformer and rPosNet side by side on real text (English to
# German, interface texts of open-source programs), one thread each, and compares them. Needs no GPU.
# Stop it at any time; run again, it goes on where it was.
#
#   bash recipes/quickstart.sh
#   UPDATES=300 bash recipes/quickstart.sh                                    shorter and worse
#   MIXERS="transformer_pos translution" bash recipes/quickstart.sh           others; the first is the baseline
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/lib/say.sh"
[ $# -eq 0 ] || fail "$*: it takes no arguments, only UPDATES and MIXERS from outside (--help shows how)."
refuse_unless_number UPDATES "${UPDATES:=2000}"
read -ra mixers <<<"${MIXERS:-transformer_pos rposnet}"
[ ${#mixers[@]} -gt 0 ] || fail "MIXERS is empty. Name mixers between spaces, such as transformer_pos rposnet."

mapfile -t known < <(known_mixers)
for MIXERS in "${mixers[@]}"; do choose_from MIXERS "${known[@]}"; done

# Runs of another length are others: they get names of their own.
suffix=""
[ "$UPDATES" = 2000 ] || suffix=_u$UPDATES
mkdir -p "$root/runs" || fail "$root/runs cannot be made (see above)."
systems=$root/runs/quickstart$suffix.txt
for mixer in "${mixers[@]}"; do echo "$mixer$suffix $mixer"; done >"$systems"

export DATASET=quickstart.en-de SIZE=tiny UPDATES JOBS=2 CPUS=1 BASELINES=${mixers[0]}$suffix
export INTERVAL=$(((UPDATES + 19) / 20)) AVERAGE=5
[ "$UPDATES" -ge 100 ] || AVERAGE=1
unset DATA RUNS SEEDS MIXERS OPTIONS GPUS NODES NODE_RANK NAME MIXER
bash "$root/recipes/compare.sh" "$systems"
! on DRY_RUN || exit 0

cd "$root"
. recipes/lib/environment.sh
posnet_environment "$root"
python recipes/lib/samples.py "runs/quickstart.en-de/compare_quickstart${suffix}_tiny/comparison.yaml"
