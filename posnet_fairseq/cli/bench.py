"""posnet-bench: how fast things are, as ratios measured in one run."""

import argparse
import functools
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from posnet_fairseq.bench import comet, decode, layers, length, models, prepare, score, translution, wmt17
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_stdout, path_text
from posnet_fairseq.shared.numbers import check_numbers
from posnet_fairseq.transformer.sizes import SIZES

MOST, MOST_PAIRS = 1_000_000, 1_000_000_000  # of all that can be counted, and of sentence pairs


def _parser():
    parser = argparse.ArgumentParser(prog="posnet-bench", description="Measure speed, as ratios in one run.")
    what = parser.add_subparsers(dest="what", required=True)

    whole = what.add_parser("models", help="training and decoding of whole models against fairseq's transformer")
    whole.set_defaults(show=_models)
    whole.add_argument("--mixers", nargs="+", default=mixer_names(), help="default: all")
    whole.add_argument("--size", choices=SIZES, default="tiny")
    whole.add_argument("--sentences", type=int, default=100, help="in a batch (default: 100)")
    whole.add_argument("--length", type=int, default=12, help="tokens of each sentence (default: 12)")
    whole.add_argument("--beam", type=int, default=5, help="of decoding (default: 5)")
    whole.add_argument("--rounds", type=int, default=7, help="default: 7; medians are shown")

    layer = what.add_parser("layers", help="one mixer with its projections against attention's")
    layer.set_defaults(show=_layers)
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
    search.set_defaults(show=_decode)
    search.add_argument("--mixers", nargs="*", default=["attention", "rposnet"], help="default: attention rposnet")
    search.add_argument("--checkpoints", type=path_text, nargs="+", default=[], help="trained models to measure too")
    search.add_argument("--beams", nargs="+", type=int, default=[1, 5, 12], help="default: 1 5 12")
    search.add_argument("--lengths", nargs="+", type=int, default=[20, 60, 120], help="default: 20 60 120")
    search.add_argument("--size", choices=SIZES, default="base")
    search.add_argument("--words", type=int, default=32000, help="of the dictionary (default: 32000)")
    search.add_argument("--sentences", type=int, default=8, help="in a batch (default: 8)")
    search.add_argument("--rounds", type=int, default=3, help="default: 3; medians are shown")

    pairs = what.add_parser("translution", help="layers of a decoder against Translution's formulas written out")
    pairs.set_defaults(show=_translution)
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

    growth = what.add_parser("length", help="an encoder layer and a decoding step in ever longer sentences")
    growth.set_defaults(show=_length)
    growth.add_argument("--mixers", nargs="+", default=["rposnet"], help="default: rposnet")
    growth.add_argument(
        "--lengths", nargs="+", type=int, default=[2**n for n in range(6, 14)], help="N (default: 64 128 ... 8192)"
    )
    growth.add_argument("--rows", type=int, default=12, help="hypotheses in a decoding step (default: 12)")
    growth.add_argument("--size", choices=SIZES, default="base")
    growth.add_argument("--rounds", type=int, default=5, help="default: 5; medians are shown")

    data = what.add_parser(
        "prepare", help="posnet-prepare against the same steps as command lines, one after the other"
    )
    data.set_defaults(show=_prepare)
    data.add_argument(
        "--text", nargs=2, type=a_path, required=True, metavar=("SOURCE", "TARGET"), help="sentence pairs, x.en y.de"
    )
    data.add_argument("--pairs", type=int, default=10**6, help="as often as that takes (default: 1000000)")
    data.add_argument("--processes", nargs="+", type=int, default=[1, 2], help="default: 1 2")
    data.add_argument("--folder", type=a_path, help="for what is made, which is removed (default: a temporary one)")

    scoring = what.add_parser("score", help="posnet-score against sacreBLEU's paired test, on WMT17's systems")
    scoring.set_defaults(show=_score)
    scoring.add_argument("--systems", type=int, default=10, help="of 16 (default: 10)")
    scoring.add_argument("--resamples", nargs="+", type=int, default=[1000, 10000], help="default: 1000 10000")
    scoring.add_argument("--processes", nargs="+", type=int, default=[1, 2], help="default: 1 2")
    scoring.add_argument("--comet-model", help="folder of a model, to measure COMET instead, against its own API")
    scoring.add_argument("--comet-encoder", help="folder of its encoder's tokeniser and configuration")
    scoring.add_argument("--segments", type=int, default=100, help="of COMET (default: 100)")
    return parser


@command
def main(arguments=None):
    """Entry point of posnet-bench."""
    options = _parser().parse_args(arguments)
    check_stdout()
    for name, value in vars(options).items():
        if all(type(number) is int for number in (value if isinstance(value, list) else [value])):
            check_numbers(options, **{name: (1, MOST_PAIRS if name == "pairs" else MOST)})
    console = Console(highlight=False)
    for shown in options.show(options):
        console.print(shown)
    console.print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, seed 1")


def _table(title, *columns):
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _mebibytes(size):
    return f"{size / 2**20:,.1f}"


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
    title = f"{options.sentences} sentences of {options.length} tokens, beam {options.beam}"
    table = _table(title, "training\ntokens/s", "× fairseq", "decoding\nsentences/s", "× fairseq")
    for name, result in results.items():
        training, decoding = f"{result['training']:,.0f}", f"{result['decoding']:.1f}"
        table.add_row(name, training, f"{result['training_ratio']:.2f}", decoding, f"{result['decoding_ratio']:.2f}")
    yield table
    yield "Per CPU second."


def _layers(options):
    if options.padded and options.place == "decoder":
        raise UsageError("--padded: a decoder's mixers need no padding mask. Leave it out, or measure --place encoder.")
    if options.mixers is None:
        names = [name for name in mixer_names() if options.place in get_mixer(name).places]
        options.mixers = [*names, "shaw+shaw_values", "irpe+irpe_on=qkv"]
    for tokens in options.lengths:
        results = layers.run(
            options.mixers,
            tokens,
            size=options.size,
            tokens=options.tokens,
            place=options.place,
            padded=options.padded,
            rounds=options.rounds,
        )
        padded = ", padded" if options.padded else ""
        title = f"N = {tokens}{padded}, {options.tokens:,} tokens, {options.place}, size {options.size}"
        table = _table(title, "time\nforward", "time\nwith backward", "memory\nMiB")
        for name, figures in results.items():
            forward, training = f"{figures['forward_ratio']:.2f}", f"{figures['training_ratio']:.2f}"
            table.add_row(name, forward, training, _mebibytes(figures["peak"]))
        yield table
    yield (
        "Time: CPU time / attention's, medians of ratios, of a call without gradients and of one with its backward "
        "pass. Memory: the most that the latter allocates at once. No dropout."
    )


def _decode(options):
    for mixer in options.mixers:
        get_mixer(mixer, "--mixers")
    longest = max(options.lengths)
    built, task = decode.build(options.mixers, options.checkpoints, options.size, options.words, longest)
    for beam in options.beams:
        for tokens in options.lengths:
            results = decode.run(built, task, options.size, beam, tokens, options.sentences, options.rounds)
            title = f"{options.sentences} sentences of {tokens} tokens, beam {beam}, size {options.size}"
            table = _table(title, "sentences/s", "tokens/s", "× fairseq", "memory\nMiB")
            for name, figures in results.items():
                sentences, speed = f"{figures['sentences']:.2f}", f"{figures['tokens']:,.0f}"
                table.add_row(name, sentences, speed, f"{figures['ratio']:.2f}", _mebibytes(figures["peak"]))
            yield table
    yield f"{len(task.source_dictionary):,} words, random sentences. Memory: the most that a batch takes at once."
    if not decode.has_ctranslate2():
        yield "CTranslate2 is not installed: pip install -e '.[bench]' in the posnet folder."


def _length(options):
    if min(options.lengths) < 2:
        raise UsageError(f"--lengths {min(options.lengths)}: give 2 or more.")
    for mixer in options.mixers:
        if "decoder" not in get_mixer(mixer.split("+")[0], "--mixers").places:
            raise UsageError(f"--mixers {mixer}: it cannot stand in a decoder. Leave it out.")
    step = functools.partial(length.decoder_step, rows=options.rows)
    for what, measure, memory in (
        ("Encoder layer, one sentence", length.encoder_layer, "allocated"),
        (f"Decoding step of {options.rows} hypotheses, with reordering", step, "state"),
    ):
        results = {
            tokens: measure(options.mixers, tokens, options.size, rounds=options.rounds) for tokens in options.lengths
        }
        table = _table(f"{what}, size {options.size}", "N", "ms", "× attention's", f"{memory}\nMiB")
        exponents = []
        for name in next(iter(results.values())):
            for tokens, figures in results.items():
                row = figures[name]
                seconds, ratio = f"{1000 * row['seconds']:.2f}", f"{row['ratio']:.3f}"
                table.add_row(name, f"{tokens:,}", seconds, ratio, _mebibytes(row["bytes"]))
            table.add_section()
            slope = length.exponent(results, [figures[name]["seconds"] for figures in results.values()])
            exponents.append(f"{name} N^{slope:.2f}" if slope is not None else f"{name} -")
        yield table
        yield f"Fitted growth from N = {length.SHORTEST_TO_FIT} on: {', '.join(exponents)}"


def _translution(options):
    if options.embed_dim % options.heads:
        raise UsageError(f"--heads {options.heads}: the width {options.embed_dim} does not divide by it.")
    for tokens in [*options.lengths, *options.alone]:
        results = translution.run(
            options.mixers,
            tokens,
            options.sentences,
            options.embed_dim,
            options.heads,
            options.rounds,
            compare=tokens in options.lengths,
        )
        title = f"N = {tokens}, B = {options.sentences}, D = {options.embed_dim}, H = {options.heads}, with backward"
        table = _table(title, "ms", "×\nattention", "×\nproducts", "memory\nMiB")
        for name, row in results.items():
            if "needs" in row:
                table.add_row(name, "no room", "", "", f"{row['needs'] / 2**20:,.0f}")
                continue
            floor = f"{row['products']:.2f}" if "products" in row else ""
            memory = f"{row['resident'] / 2**20:,.0f}"
            table.add_row(name, f"{1000 * row['seconds']:,.1f}", f"{row['ratio']:.1f}", floor, memory)
        yield table
    yield (
        "CPU time, medians; a formula written out is timed once. × products: against the matrix products alone that "
        "Translution takes. Memory: the most that the process takes at once for a call; where there is no "
        "room, what it would need."
    )


def _prepare(options):
    languages = [path.suffix[1:] for path in options.text]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        paths = prepare.repeat(options.text, options.pairs, folder)
        results = {}
        for processes in dict.fromkeys(options.processes):
            results["posnet-prepare", processes] = prepare.posnet_prepare(paths, folder / f"ours{processes}", processes)
            results["command lines", processes] = prepare.command_lines(paths, folder / f"theirs{processes}", processes)
        equal = all(prepare.same(folder / f"ours{n}", folder / f"theirs{n}", languages) for n in options.processes)
    columns = "s", "CPU\ns", "pairs/s", "×", "memory\nMiB"
    table = _table(f"{options.pairs:,} pairs from text to binary data, {prepare.MERGES:,} merges", *columns)
    slowest = results["command lines", options.processes[0]][0]
    for (what, processes), (seconds, cpu, peak) in results.items():
        rate, ratio = f"{options.pairs / seconds:,.0f}", f"{slowest / seconds:.2f}"
        table.add_row(f"{what}, {processes}", f"{seconds:,.1f}", f"{cpu:,.1f}", rate, ratio, _mebibytes(peak))
    yield table
    yield f"Codes, text and binary files are {'the same to the byte' if equal else 'NOT THE SAME'}."
    yield (
        "Behind a name: processes. ×: speed, against the command lines with one process. Memory: the most that all "
        "processes hold at once."
    )


def _score(options):
    if not 2 <= options.systems <= wmt17.SYSTEMS:
        raise UsageError(f"--systems {options.systems}: give 2 to {wmt17.SYSTEMS}.")
    if options.comet_model:
        yield _comet(options)
        return
    resampled = _table(f"Resampling and testing {options.systems} systems", "posnet\ns", "sacreBLEU\ns", "×", "p")
    for name in score.METRICS:
        for resamples in options.resamples:
            ours, theirs, same = score.resampling(name, options.systems, resamples)
            row = f"{ours:.2f}", f"{theirs:.1f}", f"{theirs / ours:.0f}", "the same" if same else "NOT THE SAME"
            resampled.add_row(f"{name}, B = {resamples:,}", *row)
    yield resampled
    columns = "posnet\ns", "sacreBLEU\ns", "×", "posnet\nMiB", "sacreBLEU\nMiB"
    whole = _table(f"BLEU and chrF of {options.systems} systems, from start to table, without a cache", *columns)
    for resamples in options.resamples:
        for processes in options.processes:
            with tempfile.TemporaryDirectory() as folder:
                ours, theirs = score.whole_calls(options.systems, resamples, processes, Path(folder))
            seconds = f"{ours[0]:.1f}", f"{theirs[0]:.1f}", f"{theirs[0] / ours[0]:.1f}"
            memory = _mebibytes(ours[2]), _mebibytes(theirs[2])
            whole.add_row(f"B = {resamples:,}, processes: {processes}", *seconds, *memory)
    yield whole


def _comet(options):
    reference, outputs = wmt17.outputs()
    # It makes no difference to the time what the source says, but it is another text.
    times = comet.against_library(
        next(iter(outputs.values())),
        reference,
        options.comet_model,
        options.comet_encoder,
        options.systems,
        options.segments,
    )
    columns = "posnet\nCPU s", "COMET's API\nCPU s", "×", "largest\ndifference"
    table = _table(f"COMET of {options.systems} systems, {options.segments} lines", *columns)
    ratio = f"{times.theirs / times.ours:.1f}"
    table.add_row(options.comet_model, f"{times.ours:.1f}", f"{times.theirs:.1f}", ratio, f"{times.difference:.0e}")
    return table
