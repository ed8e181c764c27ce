# Sourced by recipes that train: one run of a recipe at a time in a folder, trainings in the background that end with
# the recipe.

. recipes/lib/say.sh

# hold FOLDER: the trainings inherit the lock, so it is held as long as any of them runs.
hold() {
    mkdir -p "$1"
    exec 9>"$1/.lock"
    if ! flock --nonblock 9; then
        say "error: another $recipe runs in this folder, or its trainings went on when it was killed." \
            "Wait for them, or stop them (pkill fairseq-train)."
        exit 2
    fi
}

children=() working=()
stop() { [ ${#children[@]} -eq 0 ] || kill "${children[@]}" 2>/dev/null || true; }
trap stop EXIT

# started NAME LOG: the last background job, by the system it works for.
started() {
    children+=($!) working+=("$1:$2")
}

# Waits for all of them; says which failed and what the end of its log is.
finish() {
    local i system log failed=0
    for i in "${!children[@]}"; do
        wait "${children[i]}" && continue
        failed=2
        system=${working[i]%%:*} log=${working[i]#*:}
        say "error: $system was stopped or failed; the end of $log:"
        tail -n 3 "$log" >&2
    done
    children=() working=()
    return $failed
}

# follow UPDATES: progress of the trainings that were started; if one fails, the others need not go on.
follow() {
    local i watched=()
    for i in "${!children[@]}"; do
        watched+=("${children[i]}:${working[i]}")
    done
    python recipes/lib/progress.py "$1" "${watched[@]}" || stop
    finish
}
