"""posnet-bench: speed and memory, as ratios measured in one run."""

import argparse
import importlib
import json

from posnet_fairseq.shared.common_options import add_grid_options, parsed_by
from posnet_fairseq.shared.errors import counted, flag
from posnet_fairseq.shared.files import check_stdout, path_text
from posnet_fairseq.shared.progress import plain_console, print_table
from posnet_fairseq.shared.schema import check_numbers
from posnet_fairseq.transformer.sizes import SIZES

MOST = 1_000_000  # of every number on the command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="posnet-bench", description="Measure speed, as ratios in one run.")
    what = parser.add_subparsers(dest="what", required=True)

    def numbers(benchmark: argparse.ArgumentParser, **options: tuple[int | list[int], str]) -> None:
        """Add options of numbers, each with its default and what it is."""
        for name, (default, about) in options.items():
            shown = " ".join(map(str, default)) if isinstance(default, list) else default
            nargs = "+" if isinstance(default, list) else None
            help_text = f"{about} (default: {shown})" if about else f"default: {shown}"
            benchmark.add_argument(flag(name), nargs=nargs, type=int, default=default, help=help_text)

    whole = what.add_parser("models", help="training and decoding of whole models against fairseq's transformer")
    or_layers = "; one for each layer: lightconv,lightconv,attention"
    whole.add_argument("--mixers", nargs="+", help=f"default: all{or_layers}")
    numbers(whole, sentences=(100, "in a batch"), length=(12, "tokens of each sentence"), beam=(5, "of decoding"))

    layer = what.add_parser("layers", help="one mixer with its projections against attention's")
    layer.add_argument(
        "--mixers",
        nargs="+",
        help="names, with options after plus signs: shaw+shaw_values, irpe+irpe_on=qkv (default: these two and all)",
    )
    numbers(layer, lengths=([32, 64, 128, 512], "N"), tokens=(4096, "in a batch"))
    layer.add_argument("--place", choices=("encoder", "decoder"), default="encoder")
    layer.add_argument("--padded", action="store_true", help="pad a tenth of the sentences by a tenth of their length")

    search = what.add_parser(
        "decode", help="beam search: mixers with stored energies, fairseq's transformer, CTranslate2 if it is installed"
    )
    search.add_argument(
        "--mixers", nargs="*", default=["attention", "rposnet"], help=f"default: attention rposnet{or_layers}"
    )
    search.add_argument("--checkpoints", type=path_text, nargs="+", default=[], help="trained models to measure too")
    numbers(search, beams=([1, 5, 12], ""), lengths=([20, 60, 120], ""), words=(32000, "of the dictionary"))
    numbers(search, sentences=(8, "in a batch"))

    file = what.add_parser("translate", help="whole files, plain text in, plain text out, against CTranslate2")
    file.add_argument("models", metavar="MODEL", type=path_text, nargs="+", help="trained models of the same data")
    file.add_argument("file", metavar="FILE", type=path_text, help="plain text, a sentence a line")
    numbers(file, threads=([1], "of each engine, in turn"), beam=(5, "size"))

    image = what.add_parser("grid", help="mixers on a grid of tokens, such as the patches of an image")
    product = "irpe+irpe_method=product"
    variants = [product, f"{product}+irpe_on=qkv", "rope", "translution+translution_clip=3"]
    image.add_argument("--mixers", nargs="*", default=variants, help=f"default: {' '.join(variants)}")
    add_grid_options(image, (32, 32), 1)
    numbers(image, batch=(8, "B"), embed_dim=(512, "D"), heads=(8, "H"))

    for benchmark, rounds in ((whole, 7), (layer, 7), (search, 3), (file, 5), (image, 3)):
        numbers(benchmark, rounds=(rounds, "number of rounds, whose medians are printed"))
        benchmark.add_argument("--json", action="store_true", help="print JSON")
        if benchmark not in (file, image):
            size = "tiny" if benchmark is whole else "base"
            benchmark.add_argument("--size", choices=SIZES, default=size, help=f"of the models (default: {size})")
    return parser


@parsed_by(_parser, has_mixers=True)
def main(options: argparse.Namespace) -> None:
    """Entry point of posnet-bench."""
    check_stdout()
    for name, value in vars(options).items():
        if all(type(number) is int for number in (value if isinstance(value, list) else [value])):
            check_numbers(options, **{name: (0 if name == "extra_tokens" else 1, MOST)})
    import torch

    import posnet_fairseq.mixers  # noqa: F401  (registers them)
    from posnet_fairseq.bench.printed_tables import as_json

    benchmark = importlib.import_module(f"posnet_fairseq.bench.{options.what}_speed")
    if options.json:
        setting = {"threads": torch.get_num_threads(), "torch": torch.__version__, "seed": 1}
        print(json.dumps(as_json(benchmark.tables(options)) | setting, ensure_ascii=False, indent=1))
        return
    console = plain_console()
    for shown in benchmark.tables(options):
        if isinstance(shown, str):
            console.print(shown)
        else:
            print_table(shown.printed(), console)
    console.print(f"{counted(torch.get_num_threads(), 'thread')}, torch {torch.__version__}, seed 1")
