# shellcheck shell=bash
# Sourced by recipes with their arguments: shows their help, or makes the environment and hands over to posnet-run,
# whose target is called like the recipe.
set -euo pipefail
# shellcheck source=help.sh
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"

posnet_recipes=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=environment.sh
. "$posnet_recipes/lib/environment.sh"
posnet_environment "${posnet_recipes%/*}"
exec posnet-run "$(basename "$0" .sh)" "$@"
