"""python recipes/lib/check_options.py ARGUMENT ...: whether fairseq-train understands them."""

import sys

from before_training import parse

from posnet_fairseq.shared.command import command


@command
def main(arguments=None):
    """Refuse what it would refuse."""
    parse(arguments or sys.argv[1:])


if __name__ == "__main__":
    main()
