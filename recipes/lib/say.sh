# shellcheck shell=bash
# Sourced by recipes: how they speak.

recipe=$(basename "$0" .sh)
# shellcheck disable=SC2034
caller=${POSNET_PARENT:-}   # the recipe that calls this one, if one does
export POSNET_PARENT=$$     # what is started from here ends with this process

# RECIPE --help shows the remarks at its beginning.
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,$ { /^#/!q; s/^# \{0,1\}//p }' "$0"
    exit 0
fi

# on NAME: whether a switch is set, to anything but 0.
on() { [ "${!1:-0}" != 0 ]; }

say() { echo "$recipe: $*" >&2; }

fail() {
    say "error: $*"
    exit 2
}

# refuse_unless_number NAME VALUE: fails for anything but 1 to 9999999.
refuse_unless_number() {
    [[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || fail "$1=$2: give a whole number, 1 to 9999999."
}

# choose_from NAME VALUE...: fails if the variable of that name holds none of the values.
choose_from() {
    local name=$1 value
    for value in "${@:2}"; do
        [ "${!name:-}" != "$value" ] || return 0
    done
    fail "$name=${!name:-}: choose one of ${*:2}."
}

# What their source files say of mixers and datasets, without the seconds, and the environment, that importing them takes.
# shellcheck disable=SC2154
known_mixers() {
    sed -nE 's/^@register_mixer\((.*arch=)?"([a-z0-9_]+)".*/\2/p' "$root"/posnet_fairseq/mixers/*.py
}
known_datasets() { sed -nE 's/^    "([a-z0-9.-]+)": (Dataset)?\(.*/\1/p' "$root/data_prep/datasets.py"; }

# show COMMAND...: as it could be typed.
show() { printf '%q ' "$@" && echo; }
