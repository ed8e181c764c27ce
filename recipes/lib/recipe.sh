# shellcheck shell=bash
# Sourced by recipes: shows their help, or makes the environment and hands over to posnet-run.

# shellcheck source=help.sh
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"

# recipe TARGET [WORD ...]: posnet-run takes its settings from the environment; words are its own arguments.
recipe() {
    local recipes
    recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    # shellcheck source=environment.sh
    . "$recipes/lib/environment.sh"
    posnet_environment "${recipes%/*}"
    POSNET_RECIPE=$recipes/$(basename "$0") exec posnet-run "$1" "${@:2}"
}
