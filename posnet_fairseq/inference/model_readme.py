"""The README.md of a model folder: what the model is and how to use it, from facts that are known."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from posnet_fairseq import __version__
from posnet_fairseq.inference.checkpoints import State, Weights, model_arch
from posnet_fairseq.inference.precompute import has_tables
from posnet_fairseq.mixers.bases.mixer_settings import PLACE_OPTIONS
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.dictionary import Vocabulary


def readme(
    name: str,
    state: State,
    weights: Weights,
    vocabulary: Vocabulary,
    data: Path,
    scores: Sequence[str] = (),
) -> str:
    """The text of a README.md, in Markdown.

    Args:
        name: of the folder.
        state: content of the model's checkpoint.
        weights: of the model, by name.
        vocabulary: of the model.
        data: directory with the card of its training data, if that has one.
        scores: lines of Markdown on its scores; none if they are not known.
    """
    arch, (source, target) = model_arch(state), vocabulary.languages
    kind = f"translation model from {source} to {target}" if source else "language model"
    lines = [
        f"# {arch}{f', {source}-{target}' if source else ''}",
        "",
        f"A {kind}, exported by posnet {__version__}.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {fact} | {value} |" for fact, value in _facts(state, weights, vocabulary, data)),
        "",
        *_use(name, source, target),
    ]
    return "\n".join([*lines, *(["", "## Scores", "", *scores] if scores else [])]) + "\n"


def _facts(state: State, weights: Weights, vocabulary: Vocabulary, data: Path) -> Iterator[tuple[str, str]]:
    options = state["cfg"]["model"]
    mixers = {place: options.get(option) for place, option in PLACE_OPTIONS.items()}
    yield "token mixers", ", ".join(f"{place}: {mixer}" for place, mixer in mixers.items() if mixer)
    for side in ("encoder", "decoder"):
        if options.get(f"{side}_layers"):
            shape = (options[f"{side}_{what}"] for what in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads"))
            yield side, "{} layers of width {}, feed-forward {}, {} heads".format(*shape)
    each = {weight.data_ptr(): weight for weight in weights.values()}.values()
    (dtype,) = {str(weight.dtype) for weight in each if weight.is_floating_point()}
    yield "weights", f"{sum(weight.numel() for weight in each):,}, {dtype.removeprefix('torch.')}"
    if has_tables(weights):
        yield "energies of positions", "stored as tables: the model cannot be trained any more"
    yield "longest sentence", f"{options.get('max_source_positions') or options['max_target_positions']} tokens"
    names = [language or "text" for language in vocabulary.languages]
    sizes = {name: len(entries) for name, entries in zip(names, vocabulary.dictionaries, strict=True)}
    yield "dictionaries", ", ".join(f"{name}: {size:,} entries" for name, size in sizes.items())
    with contextlib.suppress(OSError, UsageError):  # data without a card
        yield from _facts_of_data(DatasetCard.read(data))


def _facts_of_data(card: DatasetCard) -> Iterator[tuple[str, str]]:
    if card.dataset:
        sentences = (card.sentences or {}).get("train")
        yield "training data", card.dataset + (f", {sentences:,} sentences" if type(sentences) is int else "")
    found = (archive.get("licence") for archive in (card.archives or {}).values() if isinstance(archive, dict))
    licenses = sorted({license for license in found if isinstance(license, str)})
    if licenses:
        yield "licenses of the data", "; ".join(licenses)


def _use(name: str, source: str, target: str) -> list[str]:
    if not source:
        return []
    command = f"posnet-translate {shlex.quote(name)} --input text.{source} --output text.{target}"
    code = f'import posnet_fairseq as posnet\n\nposnet.load({name!r}).translate("A line of text.")'
    return ["```bash", command, "```", "", "```python", *code.split("\n"), "```"]
