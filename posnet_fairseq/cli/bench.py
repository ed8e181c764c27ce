"""posnet-bench: speed and memory, as ratios measured in one run."""

import argparse
import importlib
import json

from rich.console import Console

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.common_options import parsed_by
from posnet_fairseq.shared.files import check_stdout, path_text
from posnet_fairseq.shared.schema import check_numbers
from posnet_fairseq.transformer.sizes import SIZES

MOST = 1_000_000  # of every number on the command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="posnet-bench", description="Measure speed, as ratios in one run.")
    what = parser.add_subparsers(dest="what", required=True)

    whole = what.add_parser("models", help="training and decoding of whole models against fairseq's transformer")
    whole.add_argument("--mixers", nargs="+", help="default: all")
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

    search = what.add_parser(
        "decode", help="beam search: mixers with stored energies, fairseq's transformer, CTranslate2 if it is installed"
    )
    search.add_argument("--mixers", nargs="*", default=["attention", "rposnet"], help="default: attention rposnet")
    search.add_argument("--checkpoints", type=path_text, nargs="+", default=[], help="trained models to measure too")
    search.add_argument("--beams", nargs="+", type=int, default=[1, 5, 12], help="default: 1 5 12")
    search.add_argument("--lengths", nargs="+", type=int, default=[20, 60, 120], help="default: 20 60 120")
    search.add_argument("--size", choices=SIZES, default="base")
    search.add_argument("--words", type=int, default=32000, help="of the dictionary (default: 32000)")
    search.add_argument("--sentences", type=int, default=8, help="in a batch (default: 8)")
    search.add_argument("--rounds", type=int, default=3, help="default: 3; medians are shown")

    pairs = what.add_parser("translution", help="layers of a decoder against Translution's formulas written out")
    variants = [f"translution+translution_clip={clip}" for clip in (8, 16)]
    pairs.add_argument(
        "--mixers", nargs="*", default=[*variants, "alpha_translution"], help="default: K = 8, 16, and α"
    )
    pairs.add_argument("--lengths", nargs="*", type=int, default=[32, 64, 128, 160], help="N (default: 32 64 128 160)")
    pairs.add_argument("--alone", nargs="*", type=int, default=[512, 1024], help="N, without the formula written out")
    pairs.add_argument("--sentences", type=int, default=8, help="B (default: 8)")
    pairs.add_argument("--embed-dim", type=int, default=192, help="D (default: 192)")
    pairs.add_argument("--heads", type=int, default=3, help="H (default: 3)")
    pairs.add_argument("--rounds", type=int, default=3, help="default: 3; medians are shown")

    growth = what.add_parser("length", help="growth of an encoder layer and a decoding step with the sentence")
    growth.add_argument("--mixers", nargs="+", default=["rposnet"], help="default: rposnet")
    growth.add_argument(
        "--lengths", nargs="+", type=int, default=[2**n for n in range(6, 14)], help="N (default: 64 128 ... 8192)"
    )
    growth.add_argument("--rows", type=int, default=12, help="hypotheses in a decoding step (default: 12)")
    growth.add_argument("--size", choices=SIZES, default="base")
    growth.add_argument("--rounds", type=int, default=5, help="default: 5; medians are shown")

    for benchmark in what.choices.values():
        benchmark.add_argument("--json", action="store_true", help="print JSON")
    return parser


@command
@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-bench."""
    check_stdout()
    for name, value in vars(options).items():
        if all(type(number) is int for number in (value if isinstance(value, list) else [value])):
            check_numbers(options, **{name: (1, MOST)})
    import torch

    import posnet_fairseq.mixers  # noqa: F401  (registers them)
    from posnet_fairseq.bench.tables import as_json

    benchmark = importlib.import_module(f"posnet_fairseq.bench.{options.what}")

    if options.json:
        setting = {"threads": torch.get_num_threads(), "torch": torch.__version__, "seed": 1}
        print(json.dumps(as_json(benchmark.tables(options)) | setting, ensure_ascii=False, indent=1))
        return
    console = Console(highlight=False)
    for shown in benchmark.tables(options):
        console.print(shown)
    console.print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, seed 1")
