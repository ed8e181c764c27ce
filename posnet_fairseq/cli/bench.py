"""posnet-bench: how fast things are, as ratios measured in one run."""

import argparse

import torch
from rich.console import Console
from rich.table import Table

from posnet_fairseq.bench import models
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
    return parser


@command
def main(arguments=None):
    """Entry point of posnet-bench."""
    options = _parser().parse_args(arguments)
    for name in ("sentences", "length", "beam", "rounds"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name} {getattr(options, name)}: give 1 or more.")
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
    console = Console()
    console.print(table)
    console.print(
        f"per CPU second, {torch.get_num_threads()} threads, torch {torch.__version__}, seed 1", highlight=False
    )
