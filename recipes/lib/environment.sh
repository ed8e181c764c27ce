# shellcheck shell=bash
# Sourced by the other scripts: makes .venv at the repository root, once, and puts it in front of PATH.
# An environment that is there is reused; one that was cut short is finished; a changed setup.py brings it up to date.

posnet_environment() {
    local root=$1 venv=$1/.venv stamp
    if [ "$(uname -s)" != Linux ]; then
        echo "posnet: error: works on Linux, this is $(uname -s). On Windows, run it inside WSL 2." >&2
        return 2
    fi
    stamp="$venv/posnet-$(cat "$root/setup.py" "$root/recipes/lib/environment.sh" | sha256sum | cut -c1-16)"
    if ! posnet_is_ready "$venv" "$stamp"; then
        # Of two that begin at once, the second waits and finds it made.
        (
            flock -n 9 || {
                echo "posnet: waiting for another process that makes $venv" >&2
                flock 9
            }
            posnet_make "$root" "$venv" "$stamp" 9>&-
        ) 9>"$venv.lock" || return
    fi
    PATH="$venv/bin:$PATH"
    # Threads that wait without spinning: two processes on two cores would otherwise slow each other down.
    export PATH OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
    # Keep freed memory: giving it back to the system after every batch costs a CPU about 5% of training.
    export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432
}

posnet_is_ready() {
    [ -e "$2" ] && posnet_is_whole "$1"
}

posnet_make() {
    local root=$1 venv=$2 stamp=$3 python
    ! posnet_is_ready "$venv" "$stamp" || return 0
    if [ -e "$venv" ] && posnet_is_whole "$venv"; then
        python=$venv/bin/python
        if ! posnet_suits "$python"; then
            echo "posnet: error: $venv is of $("$python" --version), posnet needs 3.11 or 3.12." \
                "Remove it and run again." >&2
            return 2
        fi
    else
        python=$(posnet_python) || return
        echo "posnet: making $venv with $("$python" --version)" >&2
        "$python" -m venv --clear "$venv" || return
    fi
    echo "posnet: installing packages into $venv (a minute or two)" >&2
    posnet_install "$root" "$venv/bin/python" || {
        echo "posnet: error: the packages could not be installed (see above). Check the network and run again." >&2
        return 2
    }
    rm -f "$venv"/posnet-*
    touch "$stamp"
}

# Whether an environment has pip and was made at this place: its commands name the place where they were made.
posnet_is_whole() {
    "$1/bin/python" -m pip --version >/dev/null 2>&1 && grep -qsF "$1/bin/" "$1/bin/pip"
}

posnet_suits() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null
}

posnet_python() {
    local candidate
    for candidate in python3.12 python3.11 python3 python; do
        if posnet_suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    echo "posnet: error: needs Python 3.11 or 3.12 with venv, found $(python3 --version 2>&1 || echo none)." \
        "Install one (on Debian and Ubuntu also its -venv package) and run again." >&2
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
