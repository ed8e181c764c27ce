"""posnet-bench: how fast things are, as ratios measured in one run."""

import argparse

import torch
from rich.console import Console
from rich.table import Table

from posnet_fairseq.bench import layers, models
from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.sizes import SIZES


def _parser():
    parser = argparse.ArgumentParser(prog="posnet-bench", description="Measure speed, as ratios in one run.")
    what = parser.add_subparsers(dest="what", required=True)
    whole = what.add_parser("models", help="training and decoding of whole models against fairseq's transformer")
    whole.add_argument("--mixers", nargs="+", default=mixer_names(), help="default: all")
    whole.add_argument("--size", choices=SIZES, default="tiny")
    whole.add_argument("--sentences", type=int, default=100, help="in a batch (default: 100)")
    whole.add_argument("--length", type=int, default=12, help="tokens of each sentence (default: 12)")
    whole.add_argument("--beam", type=int, default=5, help="of decoding (default: 5)")
    whole.add_argument("--rounds", type=int, default=7, help="default: 7; medians are shown")
    layer = what.add_parser("layers", help="one mixer with its projections against attention's")
    layer.add_argument(
        "--mixers",
        nargs="+",
        help="names, with options after plus signs: shaw+shaw_values, irpe+irpe_on=qkv (default: these two and all)",
    )
    layer.add_argument("--lengths", nargs="+", type=int, default=[32, 64, 128, 512], help="N (default: 32 64 128 512)")
    layer.add_argument("--size", choices=SIZES, default="base")
    layer.add_argument("--tokens", type=int, default=4096, help="in a batch (default: 4096)")
    layer.add_argument("--place", choices=("encoder", "decoder"), default="encoder")
    layer.add_argument("--padded", action="store_true", help="pad a tenth of the sentences by a tenth of their length")
    layer.add_argument("--rounds", type=int, default=7, help="default: 7; medians are shown")
    return parser


@command
def main(arguments=None):
    """Entry point of posnet-bench."""
    options = _parser().parse_args(arguments)
    for name, value in vars(options).items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int) and not isinstance(number, bool) and number < 1:
                raise UsageError(f"--{name} {number}: give 1 or more.")
    console = Console(highlight=False)
    measured = f"{torch.get_num_threads()} threads, torch {torch.__version__}, seed 1"
    if options.what == "models":
        console.print(_models(options))
        console.print(f"per CPU second, {measured}")
        return
    if options.padded and options.place == "decoder":
        raise UsageError("--padded: a decoder's mixers need no padding mask. Leave it out, or measure --place encoder.")
    if options.mixers is None:
        names = [name for name in mixer_names() if options.place in get_mixer(name).places]
        options.mixers = [*names, "shaw+shaw_values", "irpe+irpe_on=qkv"]
    for length in options.lengths:
        console.print(_layers(options, length))
    console.print(
        "Time: CPU time / attention's, medians of ratios, of a call without gradients and of one with its backward "
        f"pass. Memory: the most that the latter allocates at once. No dropout, {measured}"
    )


def _models(options):
    for mixer in options.mixers:
        get_mixer(mixer, "--mixers")
    results = models.run(
        options.mixers,
        size=options.size,
        sentences=options.sentences,
        length=options.length,
        beam=options.beam,
        rounds=options.rounds,
    )
    table = Table(title=f"{options.sentences} sentences of {options.length} tokens, beam {options.beam}")
    table.add_column("", no_wrap=True)
    for column in ("training\ntokens/s", "× fairseq", "decoding\nsentences/s", "× fairseq"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, result in results.items():
        training, decoding = f"{result['training']:,.0f}", f"{result['decoding']:.1f}"
        table.add_row(name, training, f"{result['training_ratio']:.2f}", decoding, f"{result['decoding_ratio']:.2f}")
    return table


def _layers(options, length):
    results = layers.run(
        options.mixers,
        length,
        size=options.size,
        tokens=options.tokens,
        place=options.place,
        padded=options.padded,
        rounds=options.rounds,
    )
    padded = ", padded" if options.padded else ""
    table = Table(title=f"N = {length}{padded}, {options.tokens:,} tokens, {options.place}, size {options.size}")
    table.add_column("", no_wrap=True)
    for column in ("time\nforward", "time\nwith backward", "memory\nMiB"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, figures in results.items():
        forward, training = f"{figures['forward_ratio']:.2f}", f"{figures['training_ratio']:.2f}"
        table.add_row(name, forward, training, f"{figures['peak'] / 2**20:.0f}")
    return table
