"""What posnet-mixers prints: the mixers, one of them, its options, or what they cost."""

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.padding import Padding
from rich.table import Table

import posnet_fairseq.mixers  # noqa: F401  (registers them)
from posnet_fairseq.costs import counting
from posnet_fairseq.mixers.bases.mixer_options import choices, plain_type
from posnet_fairseq.mixers.bases.recurrent import RecurrentMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.fourier import LONGEST_PRODUCT
from posnet_fairseq.ops.grid import Grid
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.progress import plain_console
from posnet_fairseq.transformer.model_options import per_layer, translation_model_fields
from posnet_fairseq.transformer.placement import listed
from posnet_fairseq.transformer.sizes import SIZES, of_arch

COMMON = ("gate", "cross_gate", "position_embedding", "length_ratio")
Row = dict[str, Any]
# Rows as JSON and as text, the title of their table, and what is said below it.
_Report = tuple[list[Row], list[dict[str, str]], str | None, str]


def show(options: argparse.Namespace) -> None:
    """Print what the options of posnet-mixers ask for."""
    if options.options and options.mixer is None:
        raise UsageError(f"--options: of which mixer? Choose one of: {', '.join(mixer_names())}.")
    if options.mixer and "," in options.mixer:
        _show_layers(options)
        return
    mixer = _named(options.mixer) if options.mixer else None
    if mixer and not mixer.places and (options.options or options.crossbars):
        raise UsageError(f"{mixer.name} is a mixer of grids alone, which no --arch has. Give --grid, as --grid 14x14.")
    if make := _asked(options):
        _print_report(options, make(options, [mixer.name] if mixer else mixer_names(on_grids=bool(options.grid))))
    elif mixer is None:
        _show_list(options)
    elif options.options:
        _show_options(options, mixer)
    else:
        _show_mixer(options, mixer)


def _asked(options: argparse.Namespace) -> Callable[[argparse.Namespace, Sequence[str]], _Report] | None:
    """Return what makes the report that the options ask for, or None."""
    return _of_grid if options.grid else _of_crossbars if options.crossbars else None


def _print_report(options: argparse.Namespace, report: _Report) -> None:
    rows, shown, title, remark = report
    if options.json:
        _print_json(rows)
    else:
        _print_table(options, shown, title)
        _print_text(remark)


def _show_layers(options: argparse.Namespace) -> None:
    """Print the costs of a model whose layers have different mixers."""
    if options.options or options.grid:
        what = "--options" if options.options else "--grid"
        raise UsageError(f"{what} {options.mixer}: these are several mixers. Give one.")
    mixers = ",".join(_named(name).name for name in listed("mixers", options.mixer))
    _print_report(options, (_asked(options) or _of_layers)(options, [mixers]))


def _of_layers(options: argparse.Namespace, mixers: Sequence[str]) -> _Report:
    (name,) = mixers
    trained, stored = counting.costs(name, options.size, options.words, options.length)
    texts = {options.size: name}
    texts |= {
        title: _lines(_millions(getattr(cost, figure)) for cost in (trained, stored))
        for title, figure in (("parameters", "parameters"), (f"operations, N={options.length}", "operations"))
    }
    return (
        *([{"mixer": name, "trained": trained._asdict(), "stored energies": stored._asdict()}], [texts], None),
        f"Parameters of the whole model with {options.words:,} words in one dictionary and 128 positions, and with "
        "attention where a mixer cannot stand. Operations: multiplications in a self-attention of the encoder (of the "
        "decoder or in cross-attention if the mixer cannot stand there), the mean of its layers. Second figures: with "
        "stored energies.",
    )


def _named(name: str) -> type[TokenMixer]:
    """Return the mixer that is called so, or has such architectures."""
    names = {get_mixer(name).arch: name for name in mixer_names()}
    return get_mixer(names.get(name, name))


def summary(mixer: type[TokenMixer]) -> tuple[str, str]:
    """Return the formula and the paper of a mixer, from the first paragraph of its docstring."""
    formula, _, paper = inspect.cleandoc(mixer.__doc__ or "").split("\n\n")[0].replace("\n", " ").partition(": ")
    return formula, paper.rstrip(".")


def figures(size: str, words: int, length: int) -> Iterator[Row]:
    """Yield what is known of every mixer: names, formula, paper, places, and costs as numbers."""
    for name in mixer_names():
        mixer = get_mixer(name)
        formula, paper = summary(mixer)
        trained, stored = counting.costs(name, size, words, length)
        yield {
            **{"mixer": name, "arch": f"{mixer.arch}_{size}", "formula": formula, "paper": paper},
            **{"places": list(mixer.places), "static": mixer.static},
            **{"trained": trained._asdict(), "stored energies": stored._asdict()},
        }


def overview(size: str, words: int, length: int) -> Iterator[dict[str, str]]:
    """Yield :func:`figures` as a dict from column to text; what stored energies change has a second line."""
    for row in figures(size, words, length):
        costs = (row["trained"], row["stored energies"])
        yield {
            "mixer": row["mixer"],
            "place": " ".join(place[0] for place in row["places"]),
            "static": "yes" if row["static"] else "",
            "parameters": _lines(_millions(cost["parameters"]) for cost in costs),
            "operations of a layer": _lines(cost["formula"] or "not declared" for cost in costs),
            f"N={length}": _lines(_millions(cost["operations"]) for cost in costs),
        }


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(dict.fromkeys(texts))


def _millions(number: float) -> str:
    return f"{number / 1e6:.1f}M"


def option_rows(mixer: type[TokenMixer]) -> Iterator[tuple[str, str, str, str]]:
    """Yield the options that models with a mixer read: flag, values, default, help."""
    own = dataclasses.fields(mixer.Config)
    common = [field for field in translation_model_fields() if field.name in COMMON]
    defaults = {"gate": mixer.default_gate, "cross_gate": "none", "position_embedding": mixer.position_embedding}
    defaults["length_ratio"] = "auto"
    for field in [*own, *common]:
        if field.name in ("cross_gate", "length_ratio") and "cross" not in mixer.places:
            continue
        if field.name == "length_ratio" and not mixer.reads_length_ratio:
            continue
        if field.name == "gate" and issubclass(mixer, RecurrentMixer):
            continue
        values = _values(field)
        if field.name == "position_embedding" and mixer.reads_positions:
            values = values.replace(" | none", "")
        yield flag(field.name), values, _default(mixer, field, defaults), field.metadata.get("help", "")


def _values(field: dataclasses.Field) -> str:
    """Return the values of an option as the help shows them: its choices, or their kind; nothing for a switch."""
    if plain_type(field) is bool:
        return ""
    allowed = choices(field)
    if allowed:
        return " | ".join(allowed)
    if field.name == "length_ratio":
        return "a number or auto"
    kinds = {int: "a whole number", float: "a number", str: "a text"}
    return "K or K,K,..." if per_layer(field) else kinds[plain_type(field)]


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


def _show_list(options: argparse.Namespace) -> None:
    if options.json:
        _print_json(list(figures(options.size, options.words, options.length)))
        return
    formulas = []
    for name in mixer_names():
        formula, paper = summary(get_mixer(name))
        formulas.append({"mixer": name, "energy or weight of query n and key m": formula, "paper": paper})
    _print_table(options, formulas, "Token mixers")
    title = f"--arch MIXER_{options.size} (attention: transformer_pos_{options.size})"
    _print_table(options, list(overview(options.size, options.words, options.length)), title)
    _print_text(
        "Place: encoder, decoder, cross-attention. Static: the weights depend on positions only, not on tokens. "
        "Second figures: with static energies stored as tables (PosNet Table 7). Parameters of whole models with "
        f"{options.words:,} words in one dictionary and 128 positions. Operations: multiplications in one "
        "self-attention for a sentence of N tokens; a product and the sum that it is added to count once. "
        f"D = {SIZES[options.size].embed_dim}, K̂ = 2K + 1 (posnet-mixers MIXER --options), E = H·C of --alpha-dim; "
        f"terms without N are left out. Beyond {LONGEST_PRODUCT} tokens fouriernet is a fast transform, N log N "
        "instead of N²."
    )


def _show_mixer(options: argparse.Namespace, mixer: type[TokenMixer]) -> None:
    text = inspect.cleandoc(mixer.__doc__ or "")
    report = _of_layers(options, [mixer.name]) if mixer.places else None
    if options.json:
        formula, paper = summary(mixer)
        names: Row = {"mixer": mixer.name, "architectures": [f"{mixer.arch}_{size}" for size in SIZES if mixer.places]}
        about = {"formula": formula, "paper": paper, "description": text, "places": list(mixer.places)}
        _print_json(names | about | (report[0][0] if report else {}))
        return
    _print_text(f"{mixer.name} (--arch {mixer.arch}_{{{','.join(SIZES)}}})" if mixer.places else mixer.name)
    _print_text(re.sub(r"(?<=\S)\n(?=\S)", " ", text))  # the terminal has lines of its own
    if report:
        _print_report(options, report)
    more = "--options" if mixer.places else "--grid 14x14"
    _print_text(f"Places: {', '.join(mixer.places) or 'grids alone'}. More: posnet-mixers {mixer.name} {more}")


def _show_options(options: argparse.Namespace, mixer: type[TokenMixer]) -> None:
    names = ("option", "values", "default", "meaning")
    rows = [dict(zip(names, row, strict=True)) for row in option_rows(mixer)]
    if options.json:
        _print_json(rows)
    elif options.markdown:
        _print_table(options, rows)
    else:
        console = plain_console()
        for row in rows:
            named = f"{row['option']} {row['values']}".rstrip()
            console.print(f"{named}   default: {row['default']}", style="bold")
            console.print(Padding(row["meaning"], (0, 0, 0, 4)))


def _of_grid(options: argparse.Namespace, mixers: Sequence[str]) -> _Report:
    """Return costs on a grid: of one mixer with each choice of its options, of several with their defaults."""
    shape, cells = SIZES[options.size], Grid(options.grid[0], options.grid[1], options.extra_tokens)
    rows, shown = [], []
    for name in mixers:
        sizes = options.size, options.grid, options.extra_tokens
        for chosen, cost in counting.grid_costs(name, *sizes, every_choice=len(mixers) == 1).items():
            counts = {"parameters": cost.parameters, "operations": cost.operations}
            rows.append({"mixer": name, "options": chosen} | counts)
            texts = {"parameters": f"{cost.parameters:,}", "operations": _millions(cost.operations)}
            shown.append({"mixer": f"{name} {chosen}".strip()} | texts)
    return (
        *(rows, shown, f"{cells}, D = {shape.embed_dim}, H = {shape.attention_heads}"),
        "Parameters of one layer, and multiplications in it for one image; a product and the sum that it is added to "
        "count once. In Python: posnet_fairseq.build_mixer(..., grid=(R, C), extra_tokens=E).",
    )


def _of_crossbars(options: argparse.Namespace, mixers: Sequence[str]) -> _Report:
    from posnet_fairseq.costs.crossbar_counts import count

    tile_size, prices = options.tile_size or 256, options.joules
    rows, shown = [], []
    for name in mixers:
        found = count(name, options.size, options.words, options.length, tile_size).per(options.length)
        share = found.static / (found.static + found.digital)
        row: Row = {"mixer": name, "static share": share} | vars(found)
        texts = {f"{options.size}, N={options.length}": name, "static\n%": f"{100 * share:.1f}"}
        texts |= {f"{name}\n1,000": f"{row[name] / 1e3:,.1f}" for name in ("static", "digital", "dac", "adc")}
        texts["reads"] = f"{found.reads:,.0f}"
        if prices is not None:
            row["joules"] = sum(row[part] * price for part, price in prices.items())
            texts["joules"] = f"{row['joules']:.2e}"
        rows.append(row)
        shown.append(texts)
    return (
        *(rows, shown, None),
        "Per token, of a sentence and a translation of that many tokens. Static: multiplications by weights that are "
        "stored before inference; digital: all others, as queries by keys. Reads of crossbars and conversions of their "
        f"inputs (dac) and outputs (adc) are those of decoding word by word. Crossbars of {tile_size} × {tile_size}, "
        f"{options.words:,} words.",
    )


def _print_json(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False, indent=1))


def _print_text(text: str) -> None:
    plain_console().print(text)


def _print_table(options: argparse.Namespace, rows: Sequence[Mapping[str, str]], title: str | None = None) -> None:
    """Print rows, of which each is a dict from column to text, in Markdown or as a table that fits the terminal."""
    if options.markdown:
        lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
        for cells in lines:
            print(f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), '<br>') for cell in cells)} |")
        print()
        return
    table = Table(title=title, box=box.SIMPLE, show_edge=False, pad_edge=False)
    for column in rows[0]:
        is_number = all(re.fullmatch(r"([\d.,]+(M| GiB)?\n?)*", row[column]) for row in rows)
        justify: Any = "right" if is_number else "left"
        table.add_column(column, no_wrap=is_number, overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*row.values())
    plain_console().print(table, end="\n\n")
