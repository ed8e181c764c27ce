#!/usr/bin/env bash
# Walks README.md as a new user: a copy of the checkout in an empty folder, a fresh environment, every command as printed,
# in order. Fails where a command fails, or writes or prints something else than README.md says. Trainings are shortened;
# tests/support/first_hour.py lists what is changed or left out, with reasons.
#
#   bash tests/first_hour.sh            in a temporary folder, which is removed if all is well
#   bash tests/first_hour.sh FOLDER     in a new folder, which stays
set -euo pipefail
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$root/recipes/lib/help.sh"
if [ $# -gt 0 ]; then
    mkdir "$1"
    folder=$(cd "$1" && pwd)
else
    folder=$(mktemp -d)/"first hour"
    mkdir "$folder"
fi
. "$root/recipes/lib/environment.sh"
posnet_environment "$root" # of the test, which the walk does not use
mkdir "$folder/posnet"
git -C "$root" ls-files -z --cached --others --exclude-standard |
    tar -C "$root" --null --files-from - --ignore-failed-read -c | tar -C "$folder/posnet" -x
cd "$folder/posnet"
PYTHONPATH="$root/tests" python -m support.first_hour script >../walk.sh
env -u PYTHONPATH -u VIRTUAL_ENV PATH="${PATH#"$root/.venv/bin:"}" OMP_NUM_THREADS=1 bash -euo pipefail ../walk.sh
PYTHONPATH="$root/tests" python -m support.first_hour check ..
[ $# -gt 0 ] || rm -rf "${folder%/*}"
