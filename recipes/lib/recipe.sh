# shellcheck shell=bash
# Sourced by recipes: shows their help, or makes the environment and hands over to posnet-run.

# RECIPE --help shows the remarks at its beginning.
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
    sed -n '2,$ { /^#/!q; s/^# \{0,1\}//p }' "$0"
    exit 0
fi

# recipe TARGET [WORD ...]: posnet-run takes its settings from the environment, and words as they are.
recipe() {
    local recipes
    recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    # shellcheck source=environment.sh
    . "$recipes/lib/environment.sh"
    posnet_environment "${recipes%/*}"
    POSNET_RECIPE=$recipes/$(basename "$0") exec posnet-run "$1" -- "${@:2}"
}
