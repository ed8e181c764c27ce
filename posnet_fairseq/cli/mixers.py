"""posnet-mixers: the mixers that can take the place of self-attention, and their options."""

import argparse
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

import posnet_fairseq.mixers  # noqa: F401  (registers them)
from posnet_fairseq.mixers.bases.options import choices, plain_type
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.fourier import LONGEST_PRODUCT
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import check_stdout
from posnet_fairseq.shared.numbers import check_numbers, check_range
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.transformer.options import TransformerOptions, per_layer
from posnet_fairseq.transformer.sizes import SIZES, of_arch

COMMON = ("gate", "cross_gate", "position_embedding", "length_ratio")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="posnet-mixers", description="List the token mixers, or describe one of them and its options."
    )
    parser.add_argument("mixer", nargs="?", help="describe this one")
    parser.add_argument("--options", action="store_true", help="of the given mixer: its options and their defaults")
    parser.add_argument("--size", choices=SIZES, default="base", help="of the models whose parameters are counted")
    parser.add_argument("--words", type=int, default=43650, help="entries of their dictionary (default: 43650)")
    parser.add_argument("--length", type=int, default=25, help="N, tokens of a sentence (default: 25)")
    memory = parser.add_argument_group("the memory of a training step, by simulation: needs no GPU, takes a minute")
    memory.add_argument("--memory", action="store_true", help="estimate it for the models of every mixer, or of one")
    memory.add_argument(
        "--max-tokens", type=int, help="tokens of a batch, as fairseq-train counts them (default: 4096)"
    )
    memory.add_argument("--precision", choices=("bf16", "fp16", "fp32"), help="of the training (default: bf16)")
    return parser


def summary(mixer: type[TokenMixer]) -> tuple[str, str]:
    """The formula and the paper of a mixer, from the first paragraph of its docstring."""
    formula, _, paper = (inspect.getdoc(mixer) or "").split("\n\n")[0].replace("\n", " ").partition(": ")
    return formula, paper.rstrip(".")


def overview(size: str, words: int, length: int) -> Iterator[dict[str, str]]:
    """Yield the figures of every mixer, a dict from column to text; what stored energies change has a second line.

    Args:
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        words: entries of the dictionary.
        length: N, tokens of a sentence.
    """
    from posnet_fairseq.bench import counting  # imports all of a model

    for name in mixer_names():
        mixer, costs = get_mixer(name), counting.costs(name, size, words, length)
        yield {
            "mixer": name,
            "place": "\n".join(mixer.places),
            "static": "yes" if mixer.static else "",
            "parameters": _lines(_millions(cost.parameters) for cost in costs),
            "operations of a layer": _lines(cost.formula or "not declared" for cost in costs),
            f"N={length}": _lines(_millions(cost.operations) for cost in costs),
        }


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(dict.fromkeys(texts))


def _millions(number: float | None) -> str:
    return "" if number is None else f"{number / 1e6:.1f}M"


def option_rows(mixer: type[TokenMixer]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the options that models with a mixer read: flag, values, default, help."""
    own = dataclasses.fields(mixer.Config)
    common = [field for field in dataclasses.fields(TransformerOptions) if field.name in COMMON]
    defaults = {"gate": mixer.default_gate, "cross_gate": "none", "position_embedding": mixer.position_embedding}
    defaults["length_ratio"] = "auto"
    for field in [*own, *common]:
        if field.name in ("cross_gate", "length_ratio") and "cross" not in mixer.places:
            continue
        if field.name == "length_ratio" and not mixer.reads_length_ratio:
            continue
        values = _values(field)
        if field.name == "position_embedding" and mixer.reads_positions:
            values = values.replace(" | none", "")
        yield flag(field.name), values, _default(mixer, field, defaults), field.metadata["help"]


def _values(field: dataclasses.Field) -> str:
    """The values of an option as the help shows them: its choices, or their kind; nothing for a switch."""
    if plain_type(field) is bool:
        return ""
    allowed = choices(field)
    if allowed:
        return " | ".join(allowed)
    return "K or K,K,..." if per_layer(field) else {int: "a whole number", str: "a number or auto"}[plain_type(field)]


def _default(mixer: type[TokenMixer], field: dataclasses.Field, defaults: Mapping[str, str]) -> str:
    if field.name in defaults:
        return defaults[field.name]
    sizes: dict[object, list[str]] = {}
    for size, shape in SIZES.items():
        sizes.setdefault(of_arch(mixer, field, shape), []).append(size)
    if len(sizes) > 1:
        return ", ".join(f"{value} ({', '.join(of)})" for value, of in sizes.items())
    (value,) = sizes
    return "off" if value is False else "see below" if value is None else str(value)


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of posnet-mixers."""
    options = _parser().parse_args(arguments)
    check_stdout()
    if options.options and options.mixer is None:
        raise UsageError(f"--options: of which mixer? Choose one of: {', '.join(mixer_names())}.")
    check_numbers(options, words=(5, 1_000_000), length=(5, 1_000_000))
    console = Console(highlight=False)
    if options.memory:
        _print_memory(console, options)
        return
    for name in ("max_tokens", "precision"):
        if getattr(options, name) is not None:
            raise UsageError(f"{flag(name)} is an option of --memory. Give both, or neither.")
    if options.mixer is None:
        console.print(_formulas())
        _print_figures(console, options)
        return
    mixer = _named(options.mixer)
    if not options.options:
        console.print(f"[bold]{mixer.name}[/bold] (--arch {mixer.arch}_{{{','.join(SIZES)}}})")
        console.print(inspect.getdoc(mixer), markup=False)
        console.print(f"May stand in: {', '.join(mixer.places)}. Options: posnet-mixers {mixer.name} --options")
        return
    for option, values, default, meaning in option_rows(mixer):
        console.print(f"{option} {values}".rstrip() + f"   default: {default}", markup=False, style="bold")
        console.print(Padding(escape(meaning), (0, 0, 0, 4)))


def _named(name: str) -> type[TokenMixer]:
    """The mixer that is called so, or has such architectures."""
    names = {get_mixer(name).arch: name for name in mixer_names()}
    return get_mixer(names.get(name, name), "posnet-mixers")


def _print_memory(console: Console, options: argparse.Namespace) -> None:
    from posnet_fairseq.bench.training_memory import training_memory  # imports all of a model

    tokens = 4096 if options.max_tokens is None else options.max_tokens
    precision = options.precision or "bf16"
    check_range("--max-tokens", tokens, options.length, 10_000_000)
    mixers = [_named(options.mixer).name] if options.mixer else mixer_names()
    table = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    table.add_column(f"{options.size}, {tokens:,} tokens, {precision}", no_wrap=True)
    for column in ("loss in chunks", "loss at once"):
        table.add_column(column, justify="right", no_wrap=True)
    with ProgressReporter().bar("simulating", "steps", 2 * len(mixers)) as bar:
        for name in mixers:
            row = []
            for chunked in (True, False):
                settings = {"words": options.words, "length": options.length, "precision": precision}
                row.append(training_memory(name, options.size, tokens, chunked=chunked, **settings))
                bar.advance(1)
            table.add_row(name, *(f"{size / 2**30:.2f} GiB" for size in row))
    console.print(table)
    console.print(
        f"The peak of a training step on one GPU, for sentences of {options.length} tokens on both sides and "
        f"{options.words:,} words in one dictionary: weights, gradients, activations, and the state of "
        "fused_adam as fairseq-train keeps it, with torch's operations: kernels take less. A GPU needs about 1 GiB and "
        "a tenth more. In chunks: --criterion "
        "chunked_label_smoothed_cross_entropy, with which recipes train; at once: label_smoothed_cross_entropy.",
        markup=False,
    )


def _formulas() -> Table:
    table = Table(title="Token mixers", box=box.SIMPLE)
    for column in ("mixer", "energy or weight of query n and key m", "paper"):
        table.add_column(column, overflow="fold", no_wrap=column == "mixer")
    for name in mixer_names():
        table.add_row(name, *map(escape, summary(get_mixer(name))))
    return table


def _print_figures(console: Console, options: argparse.Namespace) -> None:
    title = f"--arch MIXER_{options.size} (attention: transformer_pos_{options.size})"
    figures = Table(title=title, box=box.SIMPLE, show_edge=False, pad_edge=False)
    rows = list(overview(options.size, options.words, options.length))
    for name in rows[0]:
        number = name == "parameters" or name.startswith("N=")
        figures.add_column(name, no_wrap=True, justify="right" if number else "left")
    for row in rows:
        figures.add_row(*row.values())
    console.print(figures)
    console.print(
        "Second figures: with static energies stored as tables (PosNet Table 7). Parameters of whole models with "
        f"{options.words:,} words in one dictionary and 128 positions. Operations: multiplications in one "
        "self-attention for a sentence of N tokens; a product and the sum that it is added to count once. "
        f"D = {SIZES[options.size].embed_dim}, K̂ = 2K + 1 (posnet-mixers MIXER --options), E = H·C of --alpha-dim; "
        "terms without N are left out. Static: the weights depend on positions only, not on tokens. "
        f"Beyond {LONGEST_PRODUCT} tokens fouriernet is a fast transform, N log N instead of N².",
        markup=False,
    )
