"""posnet-mixers: the mixers that can take the place of self-attention, and their options."""

import argparse
import contextlib
import itertools
import math

from posnet_fairseq.analog.hardware import TILE_SIZES
from posnet_fairseq.shared.common_options import add_grid_options, parsed_by
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.schema import check_numbers
from posnet_fairseq.transformer.sizes import SIZES

PRICED = ("digital", "static", "reads", "dac", "adc")  # what --joules prices


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-mixers", description="List the token mixers, or describe one of them and its options."
    )
    parser.add_argument(
        "mixer",
        metavar="MIXER",
        nargs="?",
        help="describe this one; with one for each layer, such as lightconv,lightconv,attention: count its costs",
    )
    parser.add_argument("--options", action="store_true", help="list the options of MIXER with their defaults")
    parser.add_argument("--size", choices=SIZES, default="base", help="size of the models (default: base)")
    parser.add_argument("--words", type=int, default=43650, help="entries of the dictionary (default: 43650)")
    parser.add_argument("--length", type=int, default=25, help="N, tokens of a sentence (default: 25)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    grid = parser.add_argument_group("mixers on a grid of tokens, such as the patches of an image")
    add_grid_options(grid, None, 0)
    crossbars = parser.add_argument_group("memristive crossbars, which multiply by stored weights: see posnet-analog")
    crossbars.add_argument(
        "--crossbars", action="store_true", help="count, per token, the operations that crossbars could perform"
    )
    crossbars.add_argument("--tile-size", type=int, help="most inputs and outputs of a crossbar (default: 256)")
    crossbars.add_argument(
        "--joules",
        type=_price,
        nargs="+",
        metavar="NAME=JOULES",
        help=f"energy of one operation of each kind: {', '.join(PRICED)}; kinds that are not given count 0",
    )
    return parser


def _price(text: str) -> tuple[str, float]:
    """Return a name and joules; a ``type`` of argparse."""
    name, _, number = text.partition("=")
    with contextlib.suppress(ValueError):
        if name in PRICED and 0 <= float(number) < math.inf:
            return name, float(number)
    raise argparse.ArgumentTypeError(f"{text!r:.50}: give joules of {', '.join(PRICED)}, such as adc=1e-12.")


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-mixers."""
    check_stdout()
    check_numbers(options, words=(5, 1_000_000), length=(5, 1_000_000), extra_tokens=(0, 1000), tile_size=TILE_SIZES)
    for name in ("tile_size", "joules"):
        if getattr(options, name) is not None and not options.crossbars:
            raise UsageError(f"{flag(name)} is an option of --crossbars. Give both, or neither.")
    for two in itertools.combinations(("options", "crossbars", "grid"), 2):
        if all(getattr(options, name) for name in two):
            raise UsageError(f"{' '.join(map(flag, two))}: give one of the two.")
    if options.extra_tokens and not options.grid:
        raise UsageError("--extra-tokens is an option of --grid. Give both, or neither.")
    if options.joules:
        names = [name for name, _ in options.joules]
        if len(set(names)) < len(names):
            raise UsageError(f"--joules: {max(names, key=names.count)} is given twice. Give it once.")
        options.joules = dict(options.joules)
    from posnet_fairseq.costs import mixer_tables

    mixer_tables.show(options)
