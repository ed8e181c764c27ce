# Sourced by the recipes of datasets: the way from a dataset to a scored translation, in stages. Each is done once, leaves
# a log and a record in the run's folder, and goes on where it was when the recipe is run again.
#
# A recipe sets $dataset (a name of posnet-prepare) or $data (a folder that posnet-prepare made), and calls recipe "$@".
# From outside come:
#   MIXER=rposnet SIZE=base SEED=1     what is trained; MIXER and SIZE make the --arch
#   OPTIONS="--gate none" NAME=plain   more options of fairseq-train, and a name of its own for such a run
#   GPUS=4 NODES=2 or CPUS=2           where: GPUs of every machine (default: all), machines; or processes on CPUs
#   PRECISION=bf16|fp16|fp32           default: bf16 on GPUs that have it, else fp32
#   TENSORBOARD=1 DRY_RUN=1            curves while it trains; print the commands instead of running them
#   DATA, RUNS                         folders of datasets and of runs (default: data and runs, beside recipes/)
# and everything in hyperparameters.sh.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/recipes/lib/say.sh"
: "${MIXER:=rposnet}" "${SIZE:=base}" "${SEED:=1}" "${OPTIONS:=}" "${NAME:=$MIXER}" "${NODES:=1}"
stages=(prepare train average precompute translate score)

recipe() {
    recipe=$(basename "$0" .sh)
    local wanted=${1:-all} stage
    if [ $# -gt 1 ] || ! [[ " ${stages[*]} all " == *" $wanted "* ]]; then
        fail "$*: choose one of ${stages[*]}, or all (the default)."
    fi
    settle
    cd "$root"
    . recipes/lib/environment.sh
    posnet_environment "$root"
    machine
    for stage in "${stages[@]}"; do
        if [ "$wanted" = all ] || [ "$wanted" = "$stage" ]; then
            "do_$stage"
        fi
    done
}

# Checks what comes from outside, and names the places.
settle() {
    local name
    for name in SEED NODES ${GPUS:+GPUS} ${CPUS:+CPUS}; do
        refuse_unless_number "$name" "${!name}"
    done
    choose_from SIZE tiny iwslt base big
    choose_from PRECISION "" bf16 fp16 fp32
    if ! [[ $NAME =~ ^[A-Za-z0-9][A-Za-z0-9._+-]*$ ]]; then
        fail "NAME=$NAME: give a name of letters, digits, dots, dashes and underscores."
    fi
    if [ -n "${GPUS:-}" ] && [ -n "${CPUS:-}" ]; then
        fail "GPUS=$GPUS and CPUS=$CPUS: give one of them."
    fi
    . "$root/recipes/hyperparameters.sh"
    for name in TOKENS MAX_TOKENS UPDATES INTERVAL AVERAGE WARMUP MAX_POSITIONS BEAM; do
        refuse_unless_number "$name" "${!name}"
    done
    if [ "$((UPDATES / INTERVAL))" -lt "$AVERAGE" ]; then
        fail "AVERAGE=$AVERAGE: $UPDATES updates with a checkpoint every $INTERVAL make $((UPDATES / INTERVAL))." \
            "Set a smaller AVERAGE or INTERVAL."
    fi
    read -ra options <<<"$OPTIONS"
    data=${data:-$(realpath -ms "${DATA:-$root/data}")/$dataset}
    dataset=$(basename "$data")
    runs=$(realpath -ms "${RUNS:-$root/runs}")
    run=$runs/$dataset/${NAME}_${SIZE}_s$SEED
    # Short, and the same on every machine, where they lie in this checkout.
    data=${data#"$root/"} run=${run#"$root/"}
}

# Finds out how many processes there are, and on what.
machine() {
    local cores gpus
    cores=$(nproc)
    gpus=$(python recipes/lib/gpus.py)   # "number bf16": of this machine, and whether they have bf16
    read -r gpus bf16 <<<"$gpus"
    if [ -n "${CPUS:-}" ] || { [ -z "${GPUS:-}" ] && [ "$gpus" = 0 ]; }; then
        processes=${CPUS:-1} device=cpu
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(((cores + processes - 1) / processes))}
        if [ -n "${PRECISION:-}" ] && [ "$PRECISION" != fp32 ]; then
            fail "PRECISION=$PRECISION: fairseq trains with fp32 on CPUs. Leave it out."
        fi
        return
    fi
    processes=${GPUS:-$gpus} device=gpu
    if [ "$processes" -gt "$gpus" ]; then
        fail "GPUS=$processes: this machine has $gpus. Give at most that, or CPUS=$processes for processes on CPUs."
    fi
    if [ -z "${PRECISION:-}" ]; then
        PRECISION=fp32
        [ "$bf16" = no ] || PRECISION=bf16
    fi
}

# stage NAME FILE COMMAND...: see stage.py; FILE is what the command makes.
stage() {
    run_stage stage.py "$1" --made "$2" -- "${@:3}"
}

run_stage() {
    local script=$1 command=("${@:2}") i
    if [ -n "${DRY_RUN:-}" ]; then
        for i in "${!command[@]}"; do
            [ "${command[i]}" != -- ] || { show "${command[@]:i+1}"; return; }
        done
    fi
    python "recipes/lib/$script" "$run" "${command[@]}"
}

do_prepare() {
    if [ -e "$data/dataset.json" ]; then
        [ -n "${DRY_RUN:-}" ] || say "$data is there"
    elif [ -z "${preparable:-}" ]; then
        fail "$data: posnet-prepare has not made this folder (it has no dataset.json). Check the path."
    elif [ -n "${DRY_RUN:-}" ]; then
        show posnet-prepare "$dataset" --out "$data"
    else
        mkdir -p "$(dirname "$data")"
        posnet-prepare "$dataset" --out "$data"
    fi
}

# Sets $source and $target, and refuses data that is not there.
languages() {
    if [ ! -e "$data/dataset.json" ]; then
        [ -n "${DRY_RUN:-}" ] || fail "$data: there is no dataset yet. Run the stage prepare first."
        source=SOURCE target=TARGET
        return
    fi
    read -r source target < <(python recipes/lib/dataset.py languages "$data")
}

do_train() {
    local embeddings=--share-all-embeddings batches tokens command launch=() placed=()
    languages
    # Two vocabularies, as for Chinese, leave two embeddings.
    cmp -s "$data/dict.$source.txt" "$data/dict.$target.txt" || embeddings=--share-decoder-input-output-embed
    # TOKENS are spread over as few batches of at most MAX_TOKENS as will do, the same number on every process.
    batches=$(((TOKENS + MAX_TOKENS * processes * NODES - 1) / (MAX_TOKENS * processes * NODES)))
    tokens=$((TOKENS / (batches * processes * NODES)))
    say "$((tokens * batches * processes * NODES)) tokens an update:" \
        "$((processes * NODES)) processes × $batches batches × $tokens tokens"
    if [ "$device" = cpu ]; then
        placed=(--cpu)
    elif [ "$PRECISION" != fp32 ]; then
        placed=("--$PRECISION")
    fi
    if [ "$((processes * NODES))" -eq 1 ]; then
        launch=(fairseq-train)
        placed+=(--distributed-world-size 1)
    else
        launcher
        # legacy_ddp is what works on CPUs, too: the same code runs everywhere.
        placed+=(--ddp-backend legacy_ddp --load-checkpoint-on-all-dp-ranks)
        [ "$device" = gpu ] || placed+=(--distributed-backend gloo)
    fi
    [ -z "${TENSORBOARD:-}" ] || placed+=(--tensorboard-logdir "$run/tensorboard")
    command=("${launch[@]}" "$data" --user-dir posnet_fairseq --arch "${MIXER}_$SIZE" --seed "$SEED" "$embeddings"
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
        # The first machine keeps the record; the others only help.
        show "${command[@]}"
        [ -n "${DRY_RUN:-}" ] || "${command[@]}"
        return
    fi
    run_stage training.py train --average "$AVERAGE" --setting "tokens an update=$TOKENS" \
        --setting "dataset=$(dataset_key)" -- "${command[@]}"
}

# Sets $launch to what starts the processes of all machines.
launcher() {
    launch=(torchrun --nnodes "$NODES" --nproc-per-node "$processes" --max-restarts 0)
    if [ "$NODES" = 1 ]; then
        launch+=(--rdzv-backend c10d --rdzv-endpoint localhost:0)
    elif [ -n "${SLURM_JOB_ID:-}" ]; then
        local first
        first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
        launch=(srun --nodes "$NODES" --ntasks "$NODES" --ntasks-per-node 1 --kill-on-bad-exit=1 "${launch[@]}"
            --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:${MASTER_PORT:-29500}")
    elif [ -n "${MASTER_ADDR:-}" ] && [ -n "${NODE_RANK:-}" ]; then
        launch+=(--node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "${MASTER_PORT:-29500}")
    else
        fail "NODES=$NODES: run the stage train on each of them, with MASTER_ADDR=(name of the first) and" \
            "NODE_RANK=0, 1, ...; under SLURM, recipes/slurm.sbatch does it."
    fi
    launch+=(recipes/lib/rank.py)
}

# What the data is: a run does not go on with other data.
dataset_key() {
    [ -e "$data/dataset.json" ] && python recipes/lib/dataset.py key "$data" || echo unknown
}

do_average() {
    stage average "$run/averaged.pt" \
        posnet-average "$run/checkpoints" --num "$AVERAGE" --out "$run/averaged.pt"
}

do_precompute() {
    stage precompute "$run/precomputed.pt" \
        posnet-precompute "$run/averaged.pt" --out "$run/precomputed.pt" --or-copy
}

do_translate() {
    languages
    local placed=()
    [ "$device" != cpu ] || placed=(--cpu)
    [ "$processes" = 1 ] || placed+=(--processes "$processes")
    stage translate "$run/test.$target" \
        posnet-translate "$run/precomputed.pt" --data "$data" --input "$data/test.$source" --output "$run/test.$target" \
        --beam "$BEAM" --lenpen "$LENPEN" --max-len-a "$MAX_LEN_A" --max-len-b "$MAX_LEN_B" --on-long truncate \
        "${placed[@]}"
}

do_score() {
    languages
    local placed=()
    [ "$device" != cpu ] || placed=(--cpu)
    stage score "$run/report/report.html" \
        posnet-score --source "$data/test.$source" --reference "$data/test.$target" --language-pair "$source-$target" \
        --system "$NAME=$run/test.$target" --metrics "$METRICS" --out "$run/report" "${placed[@]}"
    [ -n "${DRY_RUN:-}" ] || cat "$run/report/report.md"
}
