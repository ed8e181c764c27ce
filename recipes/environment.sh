# Sourced by the other scripts: makes .venv at the repository root, once, and puts it in front of PATH.
# An environment that is there is reused; one that was cut short is finished; a changed setup.py brings it up to date.

posnet_environment() {
    local root=$1 venv=$1/.venv python stamp
    stamp="$venv/posnet-$(cat "$root/setup.py" "$root/recipes/environment.sh" | sha256sum | cut -c1-16)"
    if [ ! -e "$stamp" ]; then
        if [ ! -x "$venv/bin/python" ]; then
            python=$(posnet_python) || return
            echo "posnet: making $venv with $("$python" --version)" >&2
            "$python" -m venv "$venv" || return
        fi
        echo "posnet: installing packages into $venv (a minute or two)" >&2
        posnet_install "$root" "$venv/bin/python" || {
            echo "posnet: error: the packages could not be installed (see above). Check the network and run again." >&2
            return 2
        }
        rm -f "$venv"/posnet-*
        touch "$stamp"
    fi
    PATH="$venv/bin:$PATH"
    # Threads that wait without spinning: two processes on two cores would otherwise slow each other down.
    export PATH OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
    # Keep freed memory: giving it back to the system after every batch costs a CPU about 5% of training.
    export MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=33554432
}

posnet_python() {
    local candidate
    if [ "$(uname -s)" = Linux ]; then
        for candidate in python3.12 python3.11 python3 python; do
            if "$candidate" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
                command -v "$candidate"
                return
            fi
        done
    fi
    echo "posnet: error: needs Python 3.11 or 3.12 on Linux, found $(python3 --version 2>&1) on $(uname -s)." \
        "Install one of these (on Windows inside WSL 2) and run again." >&2
    return 2
}

posnet_install() {
    local root=$1 python=$2
    local pip=("$python" -m pip install --quiet --disable-pip-version-check)
    # Without a GPU, torch's own index has a build without gigabytes of CUDA. Where it is out of reach, pip takes
    # the build of the package index.
    local cpu=()
    command -v nvidia-smi >/dev/null || cpu=(--retries 0 --timeout 5 --extra-index-url https://download.pytorch.org/whl/cpu)
    "$python" -c 'import torch' 2>/dev/null || "${pip[@]}" "${cpu[@]}" --no-deps torch==2.13.0 2>/dev/null ||
        "${pip[@]}" torch==2.13.0 || return
    "${pip[@]}" torch==2.13.0 -e "$root[dev]"
}
