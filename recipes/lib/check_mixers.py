"""python recipes/lib/check_mixers.py OPTION NAME ...: whether language models can have these mixers."""

import sys

from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer import options as model_config  # noqa: F401  (registers the mixers)


@command
def main(arguments=None):
    """Refuse a name that is none, or stands in no decoder."""
    option, *names = arguments or sys.argv[1:]
    if not names:
        raise UsageError(f"{option} is empty. Name mixers between spaces, such as attention translution.")
    for name in names:
        if "decoder" not in get_mixer(name, option).places:
            raise UsageError(f"{option} {name}: it cannot stand in a decoder. Leave it out.")


if __name__ == "__main__":
    main()
