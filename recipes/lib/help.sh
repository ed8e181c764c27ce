# shellcheck shell=bash
# Sourced by scripts with their arguments: SCRIPT --help prints the remarks at its beginning, and nothing else is done.
for posnet_word in "$@"; do
    case $posnet_word in -h | --help)
        sed -n '2,$ { /^#/!q; s/^# \{0,1\}//p }' "$0"
        exit 0
        ;;
    esac
done
