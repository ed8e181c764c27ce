#!/usr/bin/env bash
# The first five minutes, made of twelve: trains a Transformer and rPosNet side by side on real text (English to
# German, interface texts of open-source programs), one thread each, and compares them. Needs no GPU.
# Stop it at any time; run again, it goes on where it was.
#
#   bash recipes/quickstart.sh
#   QUICKSTART_UPDATES=300 bash recipes/quickstart.sh     fewer updates: faster and worse
#   QUICKSTART_SYSTEMS="transformer_pos_tiny translution_tiny" bash recipes/quickstart.sh     the baseline first
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

recipe=quickstart
. recipes/lib/jobs.sh
updates=${QUICKSTART_UPDATES:-2000}
refuse_unless_number QUICKSTART_UPDATES "$updates"
read -ra systems <<<"${QUICKSTART_SYSTEMS:-transformer_pos_tiny rposnet_tiny}"
data=data/quickstart.en-de
runs=runs/quickstart.en-de
interval=$(((updates + 19) / 20))   # of 20 checkpoints, 8 are kept and 5 averaged
averaged=5
[ "$updates" -ge 100 ] || averaged=1

run_of() { echo "$runs/$1_s1_u$updates"; }

mkdir -p data
hold "$runs"

. recipes/lib/environment.sh
posnet_environment "$root"
export OMP_NUM_THREADS=1

if [ ! -e "$data/dataset.json" ]; then
    say "preparing the data"
    posnet-prepare quickstart.en-de --out "$data"
fi

train() {
    # Peak learning rate 2e-3 after 400 updates of about 1,100 target tokens suits this size and corpus.
    exec fairseq-train "$data" --user-dir posnet_fairseq --arch "$1" --share-all-embeddings --seed 1 --cpu \
        --optimizer adam --adam-betas '(0.9,0.98)' --adam-eps 1e-9 \
        --lr 2e-3 --lr-scheduler inverse_sqrt --warmup-updates 400 \
        --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --best-checkpoint-metric ppl \
        --max-source-positions 256 --max-target-positions 256 --max-tokens 1200 --max-update "$updates" \
        --save-dir "$2" --save-interval-updates "$interval" --keep-interval-updates 8 --no-epoch-checkpoints \
        --required-batch-size-multiple 1 --log-format json --log-interval "$interval" >>"$2/train.log" 2>&1
}

for system in "${systems[@]}"; do
    run=$(run_of "$system")
    mkdir -p "$run"
    [ ! -e "$run/averaged.pt" ] || continue
    python recipes/lib/mend.py "$run"
    train "$system" "$run" &
    started "$system" "$run/train.log"
done
if [ ${#children[@]} -gt 0 ]; then
    say "training ${systems[*]}, $updates updates each (logs: $runs/*/train.log)"
    follow "$updates"
fi

for system in "${systems[@]}"; do
    run=$(run_of "$system")
    [ -e "$run/averaged.pt" ] || posnet-average "$run" --num "$averaged" --out "$run/averaged.pt" >"$run/average.log"
done

for system in "${systems[@]}"; do
    run=$(run_of "$system")
    [ ! -e "$run/test.de" ] || continue
    posnet-translate --fast "$run/averaged.pt" --data "$data" --beam 5 --cpu --on-long truncate --max-len-a 2 --max-len-b 20 \
        --input "$data/test.en" --output "$run/test.de" 2>"$run/translate.log" &
    started "$system" "$run/translate.log"
done
if [ ${#children[@]} -gt 0 ]; then
    say "translating the test set"
    finish
fi

results=()
for system in "${systems[@]}"; do results+=("$(run_of "$system")"); done
python recipes/lib/quickstart_table.py "$data" "${results[@]}"
say "translations, logs and checkpoints are in $runs"
