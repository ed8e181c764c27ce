# shellcheck shell=bash
# Sourced by the recipes of datasets: the way from a dataset to a scored translation, in stages. Each is done once, leaves
# a log and a record in the run's folder, and goes on where it was when the recipe is run again.
#
# From outside come:
#   DATASET=wmt14.en-de DATA=folder    a dataset of posnet-prepare, and its folder (default: data/DATASET)
#   MIXER=rposnet SIZE=base SEED=1     what is trained; MIXER and SIZE make the --arch
#   OPTIONS="--gate none" NAME=plain   more options of fairseq-train, and a name of its own for such a run
#   GPUS=4 NODES=2 or CPUS=2           where: GPUs of every machine (default: all), machines; or processes on CPUs
#   PRECISION=bf16|fp16|fp32           default: bf16 on GPUs that have it, else fp32
#   RUNS=folder                        where runs go (default: runs)
#   TENSORBOARD=1 DRY_RUN=1            curves while it trains; print the commands instead of running them
# and everything in hyperparameters.sh.

set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/recipes/lib/say.sh"
stages=(prepare train average precompute translate score)

# recipe [STAGE ...]: all of them by default.
recipe() {
    local stage wanted
    for stage in "$@"; do
        [[ " ${stages[*]} all " == *" $stage "* ]] || fail "$stage: choose from ${stages[*]}, or all (the default)."
    done
    wanted=" ${*:-all} "
    settle
    ! on POSNET_CHECK || return 0   # a comparison asks whether all its runs could begin
    cd "$root"
    . recipes/lib/environment.sh
    posnet_environment "$root"
    find_device
    if [[ $wanted == *" all "* || $wanted == *" translate "* ]]; then
        check_test_set
    fi
    for stage in "${stages[@]}"; do
        [[ $wanted != *" all "* && $wanted != *" $stage "* ]] || "do_$stage"
    done
}

# Checks what comes from outside, and names the places.
settle() {
    local name known metrics
    : "${MIXER:=rposnet}" "${SIZE:=base}" "${SEED:=1}" "${OPTIONS:=}" "${NODES:=1}"
    : "${NAME:=$MIXER}"
    [ -n "${DATASET:-}${DATA:-}" ] || fail "no data is named: set DATASET=quickstart.en-de, or DATA=FOLDER."
    for name in SEED NODES ${GPUS:+GPUS} ${CPUS:+CPUS}; do
        refuse_unless_number "$name" "${!name}"
    done
    choose_from SIZE tiny iwslt base big
    choose_from PRECISION "" bf16 fp16 fp32
    [[ $MIXER =~ ^[a-z0-9_]+$ ]] || fail "MIXER=$MIXER: name one mixer (posnet-mixers lists them)."
    mapfile -t known < <(known_mixers)
    choose_from MIXER "${known[@]}"
    if ! [[ $NAME =~ ^[A-Za-z0-9][A-Za-z0-9._+-]{0,199}$ ]]; then
        fail "NAME=$NAME: give a name of letters, digits, dots, dashes and underscores, at most 200."
    fi
    if [ -n "${GPUS:-}" ] && [ -n "${CPUS:-}" ]; then
        fail "GPUS=$GPUS and CPUS=$CPUS: give one of them."
    fi
    . "$root/recipes/hyperparameters.sh"
    for name in TOKENS MAX_TOKENS UPDATES INTERVAL AVERAGE WARMUP MAX_POSITIONS BEAM; do
        refuse_unless_number "$name" "${!name}"
    done
    for name in LR LABEL_SMOOTHING ADAM_EPS LENPEN MAX_LEN_A; do
        [[ ${!name} =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ ]] || fail "$name=${!name}: give a number, as 0.1 or 7e-4."
    done
    awk "BEGIN { exit !($LR > 0) }" || fail "LR=$LR: give a number above 0."
    awk "BEGIN { exit !($LABEL_SMOOTHING < 1) }" || fail "LABEL_SMOOTHING=$LABEL_SMOOTHING: give a number below 1."
    [[ $ADAM_BETAS =~ ^\((0|0?\.[0-9]+),\ ?(0|0?\.[0-9]+)\)$ ]] ||
        fail "ADAM_BETAS=$ADAM_BETAS: give two numbers below 1, as (0.9,0.98)."
    [[ $MAX_LEN_B =~ ^[0-9]{1,7}$ ]] || fail "MAX_LEN_B=$MAX_LEN_B: give a whole number."
    read -r -d '' -a metrics <<<"${METRICS//,/ }" || true
    for name in "${metrics[@]:-none}"; do
        [[ " bleu chrf ter bleurt comet " == *" $name "* ]] ||
            fail "METRICS=$METRICS: choose from bleu, chrf, ter, bleurt and comet, with commas between them."
    done
    [[ ${NODE_RANK:-0} =~ ^(0|[1-9][0-9]{0,3})$ ]] || fail "NODE_RANK=$NODE_RANK: give 0, 1, ..., the number of this machine."
    if [ "${NODE_RANK:-0}" -ge "$NODES" ]; then
        fail "NODE_RANK=$NODE_RANK: with NODES=$NODES, give 0 to $((NODES - 1)), or leave it out for one machine."
    fi
    [[ ${MASTER_PORT:-29500} =~ ^[1-9][0-9]{0,4}$ && ${MASTER_PORT:-1} -lt 65536 ]] ||
        fail "MASTER_PORT=$MASTER_PORT: give a whole number, 1 to 65535."
    if [ "$((UPDATES / INTERVAL))" -lt "$AVERAGE" ]; then
        fail "AVERAGE=$AVERAGE: $UPDATES updates with a checkpoint every $INTERVAL make $((UPDATES / INTERVAL))." \
            "Set a smaller AVERAGE or INTERVAL."
    fi
    read_options
    # What was said relative to the caller's folder holds for all that is started from here, too.
    DATA=$(realpath -ms "${DATA:-$root/data/$DATASET}") RUNS=$(realpath -ms "${RUNS:-$root/runs}")
    data=$DATA runs=$RUNS/$(basename "$DATA")
    run=$runs/${NAME}_${SIZE}_s$SEED
    refuse_places
    [[ $data$run != *:* ]] || fail "$data, $runs: one of them has a colon in its name, at which fairseq splits paths."
    # Short, and the same on every machine, where they lie in this checkout.
    data=${data#"$root/"} runs=${runs#"$root/"} run=${run#"$root/"}
}

# Refuses data and runs where they cannot be.
refuse_places() {
    local known place=$run
    [ ! -e "$data" ] || [ -d "$data" ] || fail "DATA=$data is a file: give the folder of a dataset."
    if [ -n "${DATASET:-}" ] && [ ! -e "$data/dataset.json" ]; then
        mapfile -t known < <(known_datasets)
        choose_from DATASET "${known[@]}"
    fi
    [[ ${DATASET:-x} != */* ]] || fail "DATASET=$DATASET: give the name of a dataset; a folder is given by DATA=FOLDER."
    ! on DRY_RUN || return 0
    while [ ! -e "$place" ]; do place=$(dirname "$place"); done
    [ -d "$place" ] && [ -w "$place" ] || fail "RUNS=$RUNS: $place is no folder that can be written to."
}

# Sets $options. What the recipe itself says, in ways that depend on each other, is not said there.
read_options() {
    local word
    [[ $OPTIONS != *[\"\'\\]* ]] || fail "OPTIONS=$OPTIONS: quotes are not understood there. Give words between spaces."
    read -r -d '' -a options <<<"$OPTIONS" || true
    for word in "${options[@]}"; do
        case $word in
            --arch* | -a | --seed* | --max-tokens* | --batch-size* | --update-freq* | --max-update* | --save-* | --no-save* | \
                --required-batch-size-multiple* | --distributed-* | --log-*)
                fail "OPTIONS=$OPTIONS: $word has a variable of its own (MIXER, SIZE, SEED, TOKENS, MAX_TOKENS, UPDATES," \
                    "INTERVAL, RUNS) or is the recipe's own."
                ;;
        esac
    done
}

# Sets $device (gpu or cpu), $processes of each machine, and PRECISION.
find_device() {
    local cores gpus bf16
    read -r gpus bf16 < <(python recipes/lib/gpus.py)
    if [ -n "${CPUS:-}" ] || { [ -z "${GPUS:-}" ] && [ "$gpus" = 0 ]; }; then
        device=cpu processes=${CPUS:-1} cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
        [ "$processes" -le "$cores" ] || say "CPUS=$processes: this machine has $cores cores, on which they take turns"
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(((cores + processes - 1) / processes))}
        if [ -n "${PRECISION:-}" ] && [ "$PRECISION" != fp32 ]; then
            fail "PRECISION=$PRECISION: fairseq trains with fp32 on CPUs. Leave it out."
        fi
        PRECISION=fp32
        return
    fi
    device=gpu processes=${GPUS:-$gpus}
    if [ "$processes" -gt "$gpus" ]; then
        fail "GPUS=$processes: this machine has $gpus. Give at most that, or CPUS=$processes for processes on CPUs."
    fi
    [ -n "${PRECISION:-}" ] || PRECISION=$([ "$bf16" = yes ] && echo bf16 || echo fp32)
}

# Before days of training, not after.
check_test_set() {
    if [ -e "$data/dataset.json" ]; then
        read_card
        [ -e "$data/test.$source" ] || fail "$data has no test set (test.$source): make it with posnet-prepare corpus" \
            "--test FILE FILE, or name the stages train average precompute."
    fi
}

# stage NAME AFTER MADE COMMAND...: does a stage; MADE is the file that the command makes of the file AFTER.
stage() {
    run_stage stage.py "$1" --after "$2" --made "$3" --data "$data" ${key:+--setting "dataset=$key"} -- "${@:4}"
}

# run_stage SCRIPT NAME [OPTION...] -- COMMAND...
run_stage() {
    local script=$1
    shift
    if on DRY_RUN; then
        while [ "$1" != -- ]; do shift; done
        show "${@:2}"
        return
    fi
    python "recipes/lib/$script" "$run" "$@"
}

do_prepare() {
    if [ -e "$data/dataset.json" ]; then
        say "$data is there"
    elif [ -z "${DATASET:-}" ]; then
        fail "$data: posnet-prepare has not made this folder (it has no dataset.json). Check the path."
    elif on DRY_RUN; then
        show posnet-prepare "$DATASET" --out "$data"
    else
        # Whatever would be refused later, refuse it before hours of work.
        python recipes/lib/check_options.py "$data" --arch "${MIXER}_$SIZE" "${options[@]}"
        mkdir -p "$runs" || fail "RUNS=$RUNS: the folder cannot be made (see above)."
        mkdir -p "$(dirname "$data")" || fail "DATA=$data: the folder cannot be made (see above)."
        python recipes/lib/until_recipe_ends.py posnet-prepare "$DATASET" --out "$data"
    fi
}

# Sets $source and $target, the languages, $key, what the data is, and $casing, lowercase or cased.
read_card() {
    if [ -e "$data/dataset.json" ]; then
        local card
        card=$(python recipes/lib/dataset.py "$data")
        read -r source target key casing <<<"$card"
    elif on DRY_RUN; then
        source=SOURCE target=TARGET key=unknown casing=cased
    else
        fail "$data: there is no dataset yet. Run the stage prepare first."
    fi
}

do_train() {
    local embeddings=--share-all-embeddings world=$((processes * NODES)) batches tokens launch placed
    read_card
    # Two vocabularies, as for Chinese, leave two embeddings. (A dry run without data shows one.)
    if [ -e "$data/dataset.json" ] && ! cmp -s "$data/dict.$source.txt" "$data/dict.$target.txt"; then
        embeddings=--share-decoder-input-output-embed
    fi
    # The tokens of an update are spread over as few batches of at most MAX_TOKENS as will do.
    batches=$(((TOKENS + MAX_TOKENS * world - 1) / (MAX_TOKENS * world)))
    tokens=$((TOKENS / (batches * world)))
    if [ "$tokens" -lt "$MAX_POSITIONS" ]; then
        fail "TOKENS=$TOKENS and MAX_TOKENS=$MAX_TOKENS make batches of $tokens tokens on $world processes, and a sentence" \
            "may have MAX_POSITIONS=$MAX_POSITIONS. Take fewer processes (GPUS, CPUS, NODES), or larger batches."
    fi
    say "$((tokens * batches * world)) tokens an update: processes × --update-freq × --max-tokens =" \
        "$world × $batches × $tokens"
    find_launcher
    local command=("${launch[@]}" "$data" --user-dir posnet_fairseq --arch "${MIXER}_$SIZE" --seed "$SEED" "$embeddings"
        --criterion label_smoothed_cross_entropy --label-smoothing "$LABEL_SMOOTHING" --best-checkpoint-metric ppl
        --optimizer adam --adam-betas "$ADAM_BETAS" --adam-eps "$ADAM_EPS"
        --lr "$LR" --lr-scheduler inverse_sqrt --warmup-updates "$WARMUP" --max-update "$UPDATES"
        --max-source-positions "$MAX_POSITIONS" --max-target-positions "$MAX_POSITIONS"
        --skip-invalid-size-inputs-valid-test --required-batch-size-multiple 1
        --max-tokens "$tokens" --update-freq "$batches"
        --save-interval-updates "$INTERVAL" --no-epoch-checkpoints --save-dir "$run/checkpoints"
        --log-format json --log-interval "$(((INTERVAL + 9) / 10))"
        "${placed[@]}" "${options[@]}")
    if [ "${NODE_RANK:-0}" != 0 ]; then
        # The first machine keeps the record and does the other stages; this one only helps.
        show "${command[@]}"
        ! on DRY_RUN || exit 0
        if grep -qs '"finished": true' "$run/train.json"; then
            say "$run: train is done, the first machine does not wait for this one"
            exit 0
        fi
        exec "${command[@]}"
    fi
    run_stage training.py train --average "$AVERAGE" --world "$world" --data "$data" --setting "tokens an update=$TOKENS" --setting "dataset=$key" \
        -- "${command[@]}"
}

# Sets $launch to what starts a training on all processes, and $placed to its options about where.
find_launcher() {
    placed=()
    if [ "$device" = cpu ]; then
        placed+=(--cpu)
    elif [ "$PRECISION" != fp32 ]; then
        placed+=("--$PRECISION")
    fi
    ! on TENSORBOARD || placed+=(--tensorboard-logdir "$run/tensorboard")
    if [ "$world" -eq 1 ]; then
        launch=(fairseq-train)
        placed+=(--distributed-world-size 1)
        return
    fi
    # legacy_ddp is what fairseq has for CPUs, too: the same code runs everywhere.
    placed+=(--ddp-backend legacy_ddp --load-checkpoint-on-all-dp-ranks)
    [ "$device" = gpu ] || placed+=(--distributed-backend gloo)
    launch=(torchrun --nnodes "$NODES" --nproc-per-node "$processes" --max-restarts 0)
    if [ "$NODES" = 1 ]; then
        launch+=(--rdzv-backend c10d --rdzv-endpoint localhost:0)
    elif [ -n "${SLURM_JOB_ID:-}" ]; then
        local first
        [ -z "${NODE_RANK:-}" ] || fail "NODE_RANK=$NODE_RANK: SLURM counts the machines by itself. Leave it out."
        read -r first < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
        launch=(srun --nodes "$NODES" --ntasks "$NODES" --ntasks-per-node 1 --kill-on-bad-exit=1 "${launch[@]}"
            --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:${MASTER_PORT:-29500}")
    elif [ -n "${MASTER_ADDR:-}" ] && [ -n "${NODE_RANK:-}" ]; then
        launch+=(--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}")
    else
        fail "NODES=$NODES: run the stage train on each machine, with MASTER_ADDR=NAME_OF_THE_FIRST and NODE_RANK=0," \
            "1, ...; under SLURM, recipes/slurm.sbatch does it."
    fi
    launch+=(recipes/lib/rank.py)
}

do_average() {
    read_card
    stage average "$run/train.json" "$run/averaged.pt" \
        posnet-average "$run/checkpoints" --num "$AVERAGE" --out "$run/averaged.pt"
}

do_precompute() {
    read_card
    stage precompute "$run/averaged.pt" "$run/precomputed.pt" \
        posnet-precompute "$run/averaged.pt" --out "$run/precomputed.pt" --or-copy
}

do_translate() {
    local placed=()
    read_card
    [ "$device" != cpu ] || placed=(--cpu)
    [ "$processes" = 1 ] || placed+=(--processes "$processes")
    stage translate "$run/precomputed.pt" "$run/test.$target" \
        posnet-translate "$run/precomputed.pt" --data "$data" --input "$data/test.$source" \
        --output "$run/test.$target" --beam "$BEAM" --lenpen "$LENPEN" --max-len-a "$MAX_LEN_A" \
        --max-len-b "$MAX_LEN_B" --on-long truncate "${placed[@]}"
}

do_score() {
    local placed=()
    read_card
    [ "$device" != cpu ] || placed=(--cpu)
    [ "$casing" = cased ] || placed+=(--lowercase)
    stage score "$run/test.$target" "$run/report/report.html" \
        posnet-score --source "$data/test.$source" --reference "$data/test.$target" --language-pair "$source-$target" \
        --system "$NAME=$run/test.$target" --metrics "$METRICS" --out "$run/report" "${placed[@]}"
    on DRY_RUN || cat "$run/report/report.md"
}
