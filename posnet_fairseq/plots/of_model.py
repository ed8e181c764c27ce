"""From a checkpoint to pictures of its mixers."""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import torch
from matplotlib.figure import Figure
from torch import Tensor

from posnet_fairseq.inference.inspection import Mixing, observe
from posnet_fairseq.inference.model_folder import read_model
from posnet_fairseq.inference.model_loading import build_model
from posnet_fairseq.plots import matrices, style
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError, about
from posnet_fairseq.shared.files import replacing
from posnet_fairseq.shared.progress import ProgressReporter, shown
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.transformer.model import Transformer

LEVELS = 65534  # steps between the smallest and the largest number of a head on the page
POSITIONS = 40  # tokens without a sentence: enough for both tails of a clip distance of 16
# The name of a picture, and the function that draws it, with its arguments.
_Picture = tuple[str, Callable[..., Figure], tuple]


def without_sentence(path: str | Path) -> list[Mixing]:
    """Return the static mixers of a checkpoint, with their weights and without their gates."""
    state = read_model(path)
    with about(path):
        model = build_model(state)
    if isinstance(model, Transformer):
        source, target = _unknown_words(model.encoder), _unknown_words(model.decoder)
    else:
        source, target = None, _unknown_words(model)
    columns, rows = ([str(n) for n in range(0 if tokens is None else len(tokens))] for tokens in (source, target))
    names = {"encoder": (columns, columns), "decoder": (rows, rows), "cross": (rows, columns)}
    mixings = observe(model, source, target, names)
    # Gates depend on tokens, even where weights do not.
    static = [
        replace(mixing, query_gates=None, token_gates=None)
        for mixing in mixings
        if get_mixer(mixing.mixer).static and mixing.weights is not None
    ]
    if not static:
        raise UsageError(
            f"{path}: its mixers ({_mixers(mixings)}) have no weights that are independent of tokens. "
            'Give a sentence of the source language: --sentence "...".'
        )
    return static


def _unknown_words(side: Any) -> Tensor:
    """Return token ids of a sentence of unknown words."""
    return torch.full((min(POSITIONS, side.max_positions()),), Dictionary().unk())


def with_weights(mixings: Sequence[Mixing], report: ProgressReporter) -> list[Mixing]:
    """Return the mixings that have weights, at least one, and say which have none."""
    seen = [mixing for mixing in mixings if mixing.weights is not None]
    if not seen:
        raise UsageError(f"no mixer of this model ({_mixers(mixings)}) has weights.")
    if without := [f"{mixing.name} ({mixing.mixer})" for mixing in mixings if mixing.weights is None]:
        report.say(f"without weights, and left out: {', '.join(without)}")
    return seen


def _of_weights(mixings: Sequence[Mixing], report: ProgressReporter) -> tuple[Sequence[Mixing], list[_Picture]]:
    """Return the mixings that have weights, and pictures of their weights, energies and profiles."""
    seen = with_weights(mixings, report)
    figures: list[_Picture] = [
        (f"{name}.{mixing.name}", matrices.of_heads, (mixing, take(mixing), what))
        for name, take, what in _OF_HEADS
        for mixing in seen
        if take(mixing) is not None
    ]
    for place in matrices.PLACES:
        here = [mixing for mixing in seen if mixing.place == place]
        for name, take, what in _PROFILES:
            there = [mixing for mixing in here if take(mixing) is not None]
            if there:
                figures.append((f"{name}.{place}", matrices.profile, (there, take, what, name == "profile")))
    return seen, figures


_Quantity = tuple[str, Callable[[Mixing], Tensor | None], str]  # the name of its pictures, how to get it, its title
_OF_HEADS: tuple[_Quantity, ...] = (
    ("weights", lambda mixing: mixing.visible, "mixing weights α"),
    ("energies", lambda mixing: mixing.energies, "energies α̂ before the softmax"),
)
_PROFILES: tuple[_Quantity, ...] = (
    ("profile", lambda mixing: mixing.visible, "mixing weight α"),
    ("profile-energy", lambda mixing: mixing.energies, "energy α̂"),
    ("profile-added", lambda mixing: mixing.added, "what positions add to the energy"),
)


def _of_gates(mixings: Sequence[Mixing]) -> tuple[Sequence[Mixing], list[_Picture]]:
    """Return the mixings that have a gate, and pictures of its latent weights."""
    gated = [mixing for mixing in mixings if mixing.query_gates is not None and mixing.weights is not None]
    if not gated:
        raise UsageError(
            f"no mixer of this model ({_mixers(mixings)}) has weights and a gate of the kind gelu, whose latent "
            "weights could be drawn. Give a checkpoint that was trained with --gate gelu."
        )
    figures: list[_Picture] = [(f"gates.{mixing.name}", matrices.gates, (mixing,)) for mixing in gated]
    for place in matrices.PLACES:
        there = [mixing for mixing in gated if mixing.place == place]
        if there:
            figures.append((f"profile-gates.{place}", matrices.profile, (there, lambda m: m.visible * m.gates, "α·β")))
    return gated, figures


def draw(what: str, mixings: Sequence[Mixing], folder: Path, title: str, report: ProgressReporter) -> None:
    """Draw weights or gates and write their page; nothing if a file is there that posnet-plot did not make."""
    mixings, figures = _of_gates(mixings) if what == "gates" else _of_weights(mixings, report)
    page = folder / f"{what}.html"
    for mixing in mixings:
        if not mixing.visible.isfinite().any(dim=-1).all():  # the future of a decoder's first tokens has no weights
            raise UsageError(
                f"the weights of {mixing.mixer} in layer {mixing.layer} ({mixing.place}) are infinite or NaN, so "
                "there is nothing to draw. Take an earlier checkpoint."
            )
    missing = style.characters_without_font(name for mixing in mixings for name in (*mixing.queries, *mixing.keys))
    if missing:
        first = " ".join(missing[:10]) + (" …" if len(missing) > 10 else "")
        report.say(
            f"no font of this machine has {first}: the PNG files show boxes instead; the page and the SVG files use "
            "the fonts of the reader. (On Debian and Ubuntu: apt install fonts-noto-cjk)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = [file for name, *_ in figures for file in style.files_of(folder / name)]
    style.refuse_foreign([*files, page])
    with report.stage("draw", "pictures", len(figures)) as bar:
        for name, make, arguments in figures:
            style.save(make(*arguments), folder / name)
            bar.advance(1)
    with replacing(page) as temporary:
        temporary.write_text(render(mixings, shown(title)), encoding="utf-8", newline="\n")


def render(mixings: Sequence[Mixing], title: str) -> str:
    """Return the HTML of a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # "<" in a token must not end the script element that contains the data.
    data = json.dumps([_content(mixing) for mixing in mixings], ensure_ascii=False).replace("<", "\\u003c")
    return environment.get_template("page.html").render(title=title, data=data)


def _content(mixing: Mixing) -> dict[str, object]:
    shown = {"mixing weights α": mixing.visible, "energies before the softmax": mixing.energies}
    shown["what positions add to energies"] = mixing.added
    if mixing.query_gates is not None:
        shown["latent weights β of the gate"] = mixing.gates
        shown["α·β"] = mixing.visible * mixing.gates
    return {
        "place": matrices.PLACES[mixing.place],
        "layer": mixing.layer,
        "mixer": mixing.mixer,
        "queries": mixing.queries,
        "keys": mixing.keys,
        "queryAxis": matrices.QUERIES[mixing.place],
        "keyAxis": matrices.KEYS[mixing.place],
        "at": mixing.at.tolist() if mixing.scaled else None,
        "reach": mixing.reach,
        "shown": {name: [_packed(head) for head in heads] for name, heads in shown.items() if heads is not None},
    }


def _packed(matrix: Tensor) -> dict[str, float | str]:
    """Return the ends of a matrix's numbers, and all of them as steps between these; NaN is one step more."""
    there = matrix[matrix.isfinite()]
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)
    steps = ((matrix - low) / (high - low or 1.0) * LEVELS).round()
    steps = torch.where(matrix.isfinite(), steps, LEVELS + 1)
    numbers = steps.flatten().to(torch.int32).numpy().astype("<u2")
    return {"low": low, "high": high, "steps": base64.b64encode(numbers.tobytes()).decode()}


def _mixers(mixings: Iterable[Mixing]) -> str:
    return ", ".join(dict.fromkeys(mixing.mixer for mixing in mixings))
