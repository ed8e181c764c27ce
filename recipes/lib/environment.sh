# shellcheck shell=bash
# Sourced by the other scripts: puts .venv at the repository root in front of PATH, and makes it if it is not there.
# An environment that posnet has made has a mark in it: it is finished if it was cut short, made again if it broke, and
# brought up to date when setup.py or the version has changed. A foreign one is used if it has all that is needed, and never touched.
# The mark lists the extras of setup.py that are installed. One with more of them serves whoever needs less.

posnet_torch=torch==2.13.0
posnet_versions='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))'
posnet_has_wheel='import platform, sys; sys.exit(platform.machine() != "x86_64" or sys.version_info >= (3, 13))'

# posnet_environment ROOT [EXTRA ...]: EXTRAs are those of setup.py, dev for instance.
posnet_environment() {
    local root=$1 venv=$1/.venv stamp
    shift
    if [ "$(uname -s)" != Linux ]; then
        posnet_cannot "works on Linux, this is $(uname -s). On Windows, run it inside WSL 2."
        return 2
    fi
    stamp="$venv/posnet-$(cat "$root"/{setup.py,posnet_fairseq/_version.py,recipes/lib/environment.sh} | sha256sum | cut -c1-16)"
    if posnet_is_foreign "$venv"; then
        posnet_serves "$root" "$venv" "$@" || return 2
    elif ! posnet_is_ready "$venv" "$stamp" "$@"; then
        posnet_make_alone "$root" "$venv" "$stamp" "$@" || return 2
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
posnet_is_marked() { [ -n "$(posnet_marks "$1" 2>/dev/null)" ]; }

posnet_marks() {
    find "$1/" -maxdepth 1 -regextype posix-extended -regex '.*/posnet-([0-9a-f]{16}|begun)' "${@:2}"
}

posnet_is_empty() { [ -d "$1" ] && [ -r "$1" ] && [ -z "$(ls -A "$1")" ]; }

# posnet_serves ROOT VENV [EXTRA ...]: whether a foreign environment has all that is needed; says what it lacks.
posnet_serves() {
    local root=$1 venv=$2 lacks
    shift 2
    if [ -L "$venv" ] && [ ! -e "$venv" ]; then
        lacks="leads to $(readlink "$venv"), which is not there"
    elif [ ! -d "$venv" ]; then
        lacks="is no folder"
    elif ! "$venv/bin/python" -c '' 2>/dev/null; then
        lacks="is no environment whose Python runs"
    elif ! "$venv/bin/python" -c "$posnet_versions" 2>/dev/null; then
        lacks="is of $("$venv/bin/python" --version 2>&1), posnet trains with 3.11 to 3.14"
    else
        lacks=$("$venv/bin/python" -I "$root/recipes/lib/lacks.py" "$root" "$venv" "$@" 2>/dev/null) ||
            lacks="is damaged"
    fi
    [ -n "$lacks" ] || return 0
    posnet_cannot "$venv was not made by posnet and $lacks. Move it away and run again: posnet then makes its own." \
        "Or install posnet there (pip install -e '$(posnet_package "$root" "$@")')."
    return 1
}

# posnet_package ROOT [EXTRA ...]: what pip installs.
posnet_package() {
    local root=$1 IFS=,
    shift
    echo "$root${*:+[$*]}"
}

# posnet_is_ready VENV STAMP [EXTRA ...]
posnet_is_ready() {
    local venv=$1 stamp=$2
    shift 2
    [ -e "$stamp" ] && ! grep -qvxF -f "$stamp" -e "" < <(printf '%s\n' "$@") && posnet_is_whole "$venv"
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

# posnet_make ROOT VENV STAMP [EXTRA ...]
posnet_make() {
    local root=$1 venv=$2 stamp=$3 begun=$2/posnet-begun python installed extras
    shift 3
    ! posnet_is_ready "$venv" "$stamp" "$@" || return 0
    if posnet_is_whole "$venv"; then
        python=$venv/bin/python
        if ! posnet_suits "$python"; then
            posnet_cannot "$venv is of $("$python" --version), posnet trains with 3.11 to 3.14. Remove it and run again."
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
    # What was there is kept. Until all is installed it counts as unfinished: pip may have left half of a package.
    installed=$(posnet_marks "$venv" -exec cat {} +)
    mapfile -t extras < <(printf '%s\n' "$installed" "$@" | grep . | sort -u)
    echo "$installed" >"$begun"
    posnet_marks "$venv" ! -name posnet-begun -delete
    echo "posnet: installing packages into $venv (a few minutes)" >&2
    SECONDS=0
    posnet_install "$(posnet_package "$root" "${extras[@]}")" "$venv/bin/python" || {
        posnet_cannot "the packages could not be installed (see above). Check the network and run again."
        return 2
    }
    posnet_install_alone "$venv/bin/python" "${extras[@]}" || {
        posnet_cannot "aihwkit and COMET could not be installed (see above). Check the network and run again."
        return 2
    }
    printf '%s\n' "${extras[@]}" >"$begun"
    mv "$begun" "$stamp"
}

# An empty folder with posnet's mark, whatever was there.
posnet_clear() {
    mkdir -p "$1" && touch "$1/posnet-begun" &&
        find "$1/" -mindepth 1 -maxdepth 1 ! -name posnet-begun -exec rm -rf -- {} +
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
    # From 3.13 on, fairseq has no wheel.
    for candidate in python3.12 python3.11 python3.13 python3.14 python3 python; do
        if posnet_suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    posnet_cannot "trains with Python 3.11 to 3.14 with venv, found $(python3 --version 2>&1 || echo none)." \
        "Install one (on Debian and Ubuntu also its -venv package) and run again."
    return 2
}

# posnet_install PACKAGE PYTHON
posnet_install() {
    local package=$1 python=$2 index=https://download.pytorch.org/whl/cpu extra=()
    if ! "$python" -c 'import torch' 2>/dev/null; then
        # Without a GPU, torch's own index has a build that lacks gigabytes of CUDA. Where it is out of reach, the
        # package index serves its own build.
        if ! command -v nvidia-smi >/dev/null &&
            "$python" -c "import urllib.request as r; r.urlopen('$index/torch/', timeout=10)" 2>/dev/null; then
            extra=(--extra-index-url "$index")
        fi
        posnet_pip "$python" "${extra[@]}" "$posnet_torch" || return
    fi
    if ! "$python" -c "$posnet_has_wheel"; then
        # With pip's own environment for builds, a second torch would be fetched. With READTHEDOCS, fairseq's setup.py
        # compiles nothing: posnet has what it needs of that in Python (fairseq_plugin/uncompiled.py).
        posnet_pip "$python" "$posnet_torch" wheel "setuptools<82" &&
            READTHEDOCS=1 posnet_pip "$python" --no-build-isolation "$(grep -o 'fairseq-fixed==[0-9.]*' "${package%%[*}/setup.py")" || return
    fi
    posnet_pip "$python" "$posnet_torch" -e "$package"
}

# posnet_install_alone PYTHON [EXTRA ...]: packages for tests, without what they demand. The wheel of aihwkit, for x86_64
# alone, demands torchvision for its examples, whose build for GPUs breaks COMET beside a torch without. COMET demands a
# numpy that has no wheel from Python 3.13 on, where it works with newer ones.
posnet_install_alone() {
    local packages
    [[ " ${*:2} " = *" dev "* ]] || return 0
    packages=$("$1" -c 'import platform, sys
from posnet_fairseq.analog.hardware import AIHWKIT
if platform.machine() == "x86_64":
    print("aihwkit==" + AIHWKIT["%d.%d" % sys.version_info[:2]])
if sys.version_info >= (3, 13):
    print("unbabel-comet==2.2.7 torchmetrics==0.10.3 jsonargparse==3.13.1 entmax==1.3")') || return
    # shellcheck disable=SC2086
    [ -z "$packages" ] || posnet_pip "$1" --no-deps $packages
}

# posnet_pip PYTHON [ARGUMENT ...]: pip install, whose errors are shown, and of whose progress the large steps.
posnet_pip() {
    "$1" -m pip install --disable-pip-version-check --no-color --progress-bar off "${@:2}" | posnet_tell >&2
    return "${PIPESTATUS[0]}"
}

# Says what pip does, a line at every large step and every 20 seconds, from what it prints.
posnet_tell() {
    local line doing="looking for packages" of='([A-Za-z0-9_.]+)-[^ ]* \(([0-9.]+ [MG]B)\)' code
    while true; do
        code=0
        IFS= read -r -t 20 line || code=$?
        if [ "$code" -eq 0 ]; then
            if [[ $line =~ Downloading\ ([^ ]*/)?$of ]]; then
                doing="downloading ${BASH_REMATCH[2]} (${BASH_REMATCH[3]})"
            elif [[ $line =~ ^Installing\ collected\ packages:\ (.*) ]]; then
                doing="unpacking $(wc -w <<<"${BASH_REMATCH[1]}") packages"
            elif [[ $line =~ ^Building\ wheels\ for\ collected\ packages:\ (.*) ]]; then
                doing="building ${BASH_REMATCH[1]}"
            else
                continue
            fi
        elif [ "$code" -le 128 ]; then # the end of pip, else the 20 seconds are over
            return
        fi
        printf 'posnet: %s, %d:%02d min\n' "$doing" $((SECONDS / 60)) $((SECONDS % 60))
    done
}
