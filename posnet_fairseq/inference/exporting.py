"""The work of posnet-export: a model read, prepared and written as a folder with a README.md."""

import argparse
import importlib.util
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from posnet_fairseq import __version__
from posnet_fairseq.inference import checkpoints, ctranslate2_export, stored_energies
from posnet_fairseq.inference.checkpoints import State, Weights, is_language_model
from posnet_fairseq.inference.model_folder import plugin_of, read_model, write_model
from posnet_fairseq.inference.model_loading import build_model, weights_of
from posnet_fairseq.inference.options import CTRANSLATE2, SHORTLIST, text_options
from posnet_fairseq.inference.shortlist import make_shortlist
from posnet_fairseq.inference.vocabularies import read_vocabulary, refuse_other_dictionaries
from posnet_fairseq.shared.errors import UsageError, about, counted, flag
from posnet_fairseq.shared.failures import how_to_install
from posnet_fairseq.shared.files import new_folder
from posnet_fairseq.shared.progress import console, shown
from posnet_fairseq.shared.user_dir import imported
from posnet_fairseq.text.card import DatasetCard
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.pipeline import write_rules
from posnet_fairseq.transformer.placement import in_short, mixers_at, places

GROWTH = 1.5  # tables of energies are stored unless they make the weights larger than this
# What an option needs: its packages, and the extra of posnet's that has them.
_PACKAGES = {"onnx": (("onnx", "onnxscript", "onnxruntime"), "export"), "ctranslate2": (("ctranslate2",), "bench")}


@torch.no_grad()
def export(options: argparse.Namespace, scores: Sequence[str]) -> None:
    """Write a model folder as the options of posnet-export say, with lines of Markdown on the model's scores."""
    state = read_model(options.checkpoint)
    _check_options(options, state)
    vocabulary, data = read_vocabulary(state, options.data)
    model, note = _prepared(options.checkpoint, state, vocabulary)
    if options.onnx:
        from posnet_fairseq.inference import onnx_export

        onnx_export.check_exportable(model, options.checkpoint)
    refuse_other_dictionaries(options.checkpoint, state, vocabulary, data)
    with about(options.checkpoint):
        weights = weights_of(model, state)
    with new_folder(options.out) as folder:
        write_rules(folder, data, vocabulary.languages, **text_options(options))
        if options.shortlist_from:
            with console().status("learning which words translate which"):
                make_shortlist(options.shortlist_from, vocabulary).save(folder / SHORTLIST, vocabulary)
        write_model(folder, state, weights, data)
        tags = DatasetCard.read_if_whole(folder).tags or ()  # none with --pretokenized
        text = readme(shown(options.out.name), state, weights, vocabulary, data, scores, tags)
        (folder / "README.md").write_text(text, encoding="utf-8")
        if options.ctranslate2:
            (folder / CTRANSLATE2).mkdir()
            cfg = checkpoints.model_options(state)
            ctranslate2_export.write(model.float(), cfg, vocabulary, folder / CTRANSLATE2)
        if options.onnx:
            onnx_export.write_checked(model.float(), folder)
    if note:
        print(note)
    files = sorted(each for each in options.out.rglob("*") if each.is_file())
    size, names = sum(each.stat().st_size for each in files), [str(each.relative_to(options.out)) for each in files]
    print(f"{shown(options.out)}: {size / 2**20:,.1f} MiB: {', '.join(map(shown, names))}")


def _check_options(options: argparse.Namespace, state: State) -> None:
    """Refuse options for which packages are missing, or that are not for this model."""
    for name in ("onnx", "ctranslate2", "shortlist_from"):
        if not getattr(options, name):
            continue
        packages, extra = _PACKAGES.get(name, ((), ""))
        if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
            raise UsageError(f"{flag(name)}: {', '.join(missing)} missing. {how_to_install(extra)}")
        if is_language_model(state):
            raise UsageError(
                f"{flag(name)}: {options.checkpoint} is a language model, and this is for translation models. Leave it "
                "out."
            )
    if options.ctranslate2:
        ctranslate2_export.check_model(checkpoints.model_options(state), options.checkpoint)


def _prepared(path: str, state: State, vocabulary: Vocabulary) -> tuple[Any, str]:
    """Return the model, with stored energies unless they are too large, and a sentence on that or ""."""
    with about(path):
        model = build_model(state, vocabulary)
    if stored_energies.is_precomputed(model) or not stored_energies.mixers_with_energies(model):
        return model, ""
    before = stored_energies.parameter_count(model)
    stored_energies.precompute(model)
    growth = stored_energies.parameter_count(model) / before
    if growth <= GROWTH:
        return model, "Position energies are stored as tables: the same translations, faster."
    return build_model(state, vocabulary), (
        f"Energies are not stored: tables for its longest sentences would make it {growth:.1f} times as large. "
        "posnet-precompute --max-length makes tables for shorter ones; give its result to posnet-export."
    )


def readme(
    name: str,
    state: State,
    weights: Weights,
    vocabulary: Vocabulary,
    data: Path,
    scores: Sequence[str],
    tags: Collection[str],
) -> str:
    """Return the text of a README.md, in Markdown, from facts that are known.

    `name` is that of the folder, and `tags` are the target languages of which one must be chosen.
    """
    arch, (source, target) = checkpoints.model_arch(state), vocabulary.languages
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
    ]
    if source:
        plugin, first = plugin_of(vars(checkpoints.model_options(state))), source.split("+")[0]
        to = next((language for language in tags if language != first), "")  # one of several languages
        command = f"posnet-translate {shlex.quote(name)} --input text.{first} --output text.{to or target}"
        command += f" --to {to}" * bool(to)
        line = '"A line of text."' + f", {to=}" * bool(to)
        code = ["import posnet_fairseq as posnet", "", f"posnet.load({name!r}).translate({line})"]
        if plugin in (Path(folder).name for folder in imported):  # an installed plugin needs neither
            command, code = f"{command} --user-dir {plugin}", [f"import {plugin}", *code]
        lines += ["```bash", command, "```", "", "```python", *code, "```"]
    return "\n".join([*lines, *(["", "## Scores", "", *scores] if scores else [])]) + "\n"


def _facts(state: State, weights: Weights, vocabulary: Vocabulary, data: Path) -> Iterator[tuple[str, str]]:
    options = state["cfg"]["model"]
    cfg = checkpoints.model_options(state)
    mixers = {place: in_short(mixer.name for mixer in mixers_at(cfg, place)) for place in places(cfg)}
    yield "token mixers", ", ".join(f"{place}: {mixer}" for place, mixer in mixers.items())
    for side in ("encoder", "decoder"):
        if options.get(f"{side}_layers"):
            layers, heads = (
                counted(options[f"{side}_{what}s"], what.split("_")[-1]) for what in ("layer", "attention_head")
            )
            width, inner = (options[f"{side}_{what}"] for what in ("embed_dim", "ffn_embed_dim"))
            yield side, f"{layers} of width {width}, feed-forward {inner}, {heads}"
    each = {weight.data_ptr(): weight for weight in weights.values() if weight.is_floating_point()}.values()
    (dtype,) = {str(weight.dtype) for weight in each}
    yield "weights", f"{sum(weight.numel() for weight in each):,}, {dtype.removeprefix('torch.')}"
    if stored_energies.has_tables(weights):
        yield "position energies", "stored as tables, so the model cannot be trained further"
    yield "longest sentence", f"{options.get('max_source_positions') or options['max_target_positions']} tokens"
    names = [language or "text" for language in vocabulary.languages]
    sizes = {name: len(entries) for name, entries in zip(names, vocabulary.dictionaries, strict=True)}
    yield "dictionaries", ", ".join(f"{name}: {size:,} entries" for name, size in sizes.items())
    card = DatasetCard.read_if_whole(data)
    if card.tags:
        yield "translates into", ", ".join(card.tags)
    if card.dataset:
        sentences = (card.sentences or {}).get("train")
        yield "training data", card.dataset + (f", {counted(sentences, 'sentence')}" if type(sentences) is int else "")
    found = (archive.get("licence") for archive in (card.archives or {}).values() if isinstance(archive, dict))
    if licenses := sorted({license for license in found if isinstance(license, str)}):
        yield "licenses of the data", "; ".join(licenses)
