#!/usr/bin/env bash
# Language models after the Translution paper (Fan et al., 2025, Table 7): trains a GPT with self-attention, one with
# α-Translution and one with Translution on the same text, one after the other, and prints their perplexities side by
# side. Stop it at any time; run again, it goes on where it was.
#
#   bash recipes/lm.sh                          the English side of the quickstart's text
#   bash recipes/lm.sh my.txt                   a text file of your own; its end is held out for validation and test
#   LM_UPDATES=100 bash recipes/lm.sh           fewer updates: faster and worse
#   LM_SIZE=b LM_SEED=2 bash recipes/lm.sh      GPT-A, -B or -C; another seed
#   LM_MIXERS="attention rposnet" bash recipes/lm.sh     any mixers that may stand in a decoder
set -euo pipefail
text=${1:+$(realpath -m -- "$1")} arguments=$#
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

. recipes/lib/say.sh
updates=${LM_UPDATES:-200} seed=${LM_SEED:-1} LM_SIZE=${LM_SIZE:-a}
read -ra mixers <<<"${LM_MIXERS:-attention alpha_translution translution}"
refuse_unless_number LM_UPDATES "$updates"
refuse_unless_number LM_SEED "$seed"
choose_from LM_SIZE a b c   # the sizes of the paper's GPTs
[ "$arguments" -le 1 ] || fail "$arguments files were given. Give one, or none for the default text."
[ -z "$text" ] || [ -f "$text" ] || fail "$text: there is no such file. Check the path."

. recipes/lib/environment.sh
posnet_environment "$root"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(nproc)}
python recipes/lib/check_mixers.py LM_MIXERS "${mixers[@]}"

mkdir -p data
if [ -z "$text" ]; then
    name=quickstart.en
else
    name=$(basename "$text")
    name=${name//[^[:alnum:]._-]/_}-$(sha256sum <"$text" | cut -c1-8)   # fairseq splits paths at colons
fi
data=data/lm.$name runs=runs/lm.$name
if [ ! -e "$data/dataset.json" ]; then
    say "preparing the data"
    prepare=(python recipes/lib/until_recipe_ends.py posnet-prepare)
    if [ -z "$text" ]; then
        [ -e data/quickstart.en-de/dataset.json ] || "${prepare[@]}" quickstart.en-de --out data/quickstart.en-de
        # Its sentences are sorted and do not belong together; in their order each would give the next one away.
        sets=(--train data/quickstart.en-de/train.en --valid data/quickstart.en-de/valid.en)
        sets+=(--test data/quickstart.en-de/test.en --shuffle 1)
    else
        sets=(--train "$text")
    fi
    "${prepare[@]}" text "${sets[@]}" --out "$data"
fi

read -r gpus _ < <(python recipes/lib/gpus.py)
device=()
[ "$gpus" -gt 0 ] || device=(--cpu)
# Blocks of 160 tokens, eight at a time, and clipping, weight decay and cosine schedule as in the paper's App. I.3.
# Its learning rate is lost in the text: the one here suits the default text.
blocks=(--task language_modeling --tokens-per-sample 160 --batch-size 8 --required-batch-size-multiple 1)

results=()
for mixer in "${mixers[@]}"; do
    run="$runs/gpt_${LM_SIZE}_${mixer}_s${seed}_u$updates"
    results+=("$run")
    python recipes/lib/training.py "$run" train --average 1 -- \
        fairseq-train "$data" --user-dir posnet_fairseq --arch "gpt_${LM_SIZE}_$mixer" --seed "$seed" "${device[@]}" \
        "${blocks[@]}" --criterion cross_entropy --distributed-world-size 1 \
        --optimizer adam --adam-betas '(0.9,0.95)' --weight-decay 0.05 --clip-norm 1.0 \
        --lr 4e-3 --lr-scheduler cosine --warmup-updates "$((updates / 6))" --max-update "$updates" \
        --save-dir "$run/checkpoints" --save-interval-updates "$(((updates + 5) / 6))" --no-epoch-checkpoints \
        --log-format json --log-interval "$(((updates + 29) / 30))"
    python recipes/lib/stage.py "$run" eval -- \
        fairseq-eval-lm "$data" --user-dir posnet_fairseq "${blocks[@]}" --gen-subset test "${device[@]}" \
        --path "$run/checkpoints/checkpoint_best.pt"
done
python recipes/lib/lm_table.py "$seed" "${results[@]}"
say "logs and checkpoints are in $runs"
