# shellcheck shell=bash
# Sourced by the other scripts: puts .venv at the repository root in front of PATH, and makes it if it is not there.
# An environment that posnet has made has a mark in it: it is finished if it was cut short, made again if it broke, and
# brought up to date when setup.py has changed. A foreign one is used if it has all that is needed, and never touched.

posnet_versions='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))'

posnet_environment() {
    local root=$1 venv=$1/.venv stamp
    if [ "$(uname -s)" != Linux ]; then
        posnet_cannot "works on Linux, this is $(uname -s). On Windows, run it inside WSL 2."
        return 2
    fi
    stamp="$venv/posnet-$(cat "$root/setup.py" "$root/recipes/lib/environment.sh" | sha256sum | cut -c1-16)"
    if posnet_is_foreign "$venv"; then
        posnet_serves "$root" "$venv" || return 2
    elif ! posnet_is_ready "$venv" "$stamp"; then
        posnet_make_alone "$root" "$venv" "$stamp" || return 2
    fi
    export PATH="$venv/bin:$PATH"
}

posnet_cannot() { echo "posnet: error: $*" >&2; }

# Whether there is an environment or anything else that posnet has not made. A link may lead to the environment of another checkout, unless
# posnet has begun one there.
posnet_is_foreign() {
    ! posnet_is_empty "$1" && [ ! -e "$1/posnet-begun" ] || return 1
    [ -L "$1" ] || { [ -e "$1" ] && ! posnet_is_marked "$1"; }
}

# The mark of a finished environment is a hash of what it was made of; an unfinished one has posnet-begun.
posnet_is_marked() {
    [ -n "$(find "$1/" -maxdepth 1 -regextype posix-extended -regex '.*/posnet-([0-9a-f]{16}|begun)' 2>/dev/null)" ]
}

posnet_is_empty() { [ -d "$1" ] && [ -r "$1" ] && [ -z "$(ls -A "$1")" ]; }

# posnet_serves ROOT VENV: whether a foreign environment has all that is needed; says what it lacks.
posnet_serves() {
    local root=$1 venv=$2 lacks
    if [ -L "$venv" ] && [ ! -e "$venv" ]; then
        lacks="leads to $(readlink "$venv"), which is not there"
    elif [ ! -d "$venv" ]; then
        lacks="is no folder"
    elif ! "$venv/bin/python" -c '' 2>/dev/null; then
        lacks="is no environment whose Python runs"
    elif ! "$venv/bin/python" -c "$posnet_versions" 2>/dev/null; then
        lacks="is of $("$venv/bin/python" --version 2>&1), posnet needs 3.11 or 3.12"
    else
        lacks=$("$venv/bin/python" -I "$root/recipes/lib/lacks.py" "$root" "$venv" 2>/dev/null) ||
            lacks="is damaged"
    fi
    [ -n "$lacks" ] || return 0
    posnet_cannot "$venv was not made by posnet and $lacks. Move it away and run again: posnet then makes its own." \
        "Or install posnet there (pip install -e $root)."
    return 1
}

posnet_is_ready() {
    [ -e "$2" ] && posnet_is_whole "$1"
}

# Of two that begin at once, the second waits and finds it made.
posnet_make_alone() {
    local venv=$2
    if [ -d "$venv.lock" ] || ! : 2>/dev/null >>"$venv.lock"; then
        posnet_cannot "$venv.lock cannot be written. Remove it, or make $(dirname "$venv") writable."
        return 2
    fi
    (
        flock -n 9 || {
            echo "posnet: waiting for another process that makes $venv" >&2
            flock 9
        }
        posnet_make "$@" 9>&-
    ) 9>>"$venv.lock"
}

posnet_make() {
    local root=$1 venv=$2 stamp=$3 python
    ! posnet_is_ready "$venv" "$stamp" || return 0
    if posnet_is_whole "$venv"; then
        python=$venv/bin/python
        if ! posnet_suits "$python"; then
            posnet_cannot "$venv is of $("$python" --version), posnet needs 3.11 or 3.12. Remove it and run again."
            return 2
        fi
    else
        python=$(posnet_python) || return
        echo "posnet: making $venv with $("$python" --version)" >&2
        if ! { posnet_clear "$venv" && "$python" -m venv "$venv"; }; then
            posnet_cannot "$venv could not be made (see above). Run again when that is repaired."
            return 2
        fi
    fi
    echo "posnet: installing packages into $venv (a minute or two)" >&2
    posnet_install "$root" "$venv/bin/python" || {
        posnet_cannot "the packages could not be installed (see above). Check the network and run again."
        return 2
    }
    touch "$stamp"
    find "$venv" -maxdepth 1 -name 'posnet-*' ! -name "${stamp##*/}" -delete
}

# An empty folder with posnet's mark, whatever was there.
posnet_clear() {
    mkdir -p "$1" && touch "$1/posnet-begun" &&
        find "$1" -mindepth 1 -maxdepth 1 ! -name posnet-begun -exec rm -rf -- {} +
}

# Whether an environment has pip and was made at this place: its commands name the place where they were made.
posnet_is_whole() {
    local place
    "$1/bin/python" -m pip --version >/dev/null 2>&1 || return
    place=$(grep -aom 1 '/.*/bin/python' "$1/bin/pip" 2>/dev/null) && [ "${place%/bin/python}" -ef "$1" ]
}

posnet_suits() {
    "$1" -c "import venv, ensurepip; $posnet_versions" 2>/dev/null
}

posnet_python() {
    local candidate
    for candidate in python3.12 python3.11 python3 python; do
        if posnet_suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    posnet_cannot "needs Python 3.11 or 3.12 with venv, found $(python3 --version 2>&1 || echo none)." \
        "Install one (on Debian and Ubuntu also its -venv package) and run again."
    return 2
}

posnet_install() {
    local root=$1 python=$2 index=https://download.pytorch.org/whl/cpu extra=()
    local pip=("$python" -m pip install --quiet --disable-pip-version-check)
    if ! "$python" -c 'import torch' 2>/dev/null; then
        # Without a GPU, torch's own index has a build that lacks gigabytes of CUDA. Where it is out of reach, the
        # package index serves its own build.
        if ! command -v nvidia-smi >/dev/null &&
            "$python" -c "import urllib.request as r; r.urlopen('$index/torch/', timeout=10)" 2>/dev/null; then
            extra=(--extra-index-url "$index")
        fi
        "${pip[@]}" "${extra[@]}" torch==2.13.0 || return
    fi
    "${pip[@]}" torch==2.13.0 -e "${root}[dev]"
}
