# shellcheck shell=bash
# Sourced by recipes with their arguments: shows their help, or makes the environment and hands over to posnet-run,
# whose target is called like the recipe.
set -euo pipefail
# shellcheck source=help.sh
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"

# Settings were environment variables once. Passing them over would train another model.
for posnet_word in DATASET DATA MIXER MIXERS SIZE SEED SEEDS OPTIONS UPDATES LR TOKENS DRY_RUN \
    LM_MIXERS LM_SIZE LM_SEED LM_UPDATES; do
    if [ -n "${!posnet_word:-}" ]; then
        posnet_flag=${posnet_word#LM_}
        posnet_flag=${posnet_flag//_/-}
        echo "posnet: error: $posnet_word=${!posnet_word} is no longer read. Give --${posnet_flag,,}, and unset it." >&2
        exit 2
    fi
done

posnet_recipes=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=environment.sh
. "$posnet_recipes/lib/environment.sh"
posnet_environment "${posnet_recipes%/*}"
exec posnet-run "$(basename "$0" .sh)" "$@"
