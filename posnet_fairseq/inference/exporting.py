"""The work of posnet-export: a model read, prepared and written as a folder."""

import argparse
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from posnet_fairseq.inference import ctranslate2_export
from posnet_fairseq.inference.arguments import CTRANSLATE2, SHORTLIST
from posnet_fairseq.inference.checkpoints import State, about, is_language_model, model_options
from posnet_fairseq.inference.model_folder import read_model, write_model
from posnet_fairseq.inference.model_readme import readme
from posnet_fairseq.inference.models import build_language_model, build_model, weights_of
from posnet_fairseq.inference.precompute import is_precomputed, mixers_with_energies, parameter_count, precompute
from posnet_fairseq.inference.shortlist import make_shortlist
from posnet_fairseq.inference.text_options import text_options
from posnet_fairseq.inference.vocabularies import (
    read_language_model_vocabulary,
    read_vocabulary,
    refuse_other_dictionaries,
)
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.folders import new_folder
from posnet_fairseq.shared.progress import console, shown
from posnet_fairseq.text.dictionary import Vocabulary
from posnet_fairseq.text.rules import write_rules

# Tables of energies are stored unless they make the weights larger than this.
GROWTH = 1.5


def _prepared(path: str, state: State, vocabulary: Vocabulary) -> tuple[Any, str]:
    """The model, with stored energies unless they are too large, and a sentence on that or ""."""
    build: Any = build_language_model if is_language_model(state) else build_model
    with about(path):
        model = build(state, vocabulary)
    if is_precomputed(model) or not mixers_with_energies(model):
        return model, ""
    before = parameter_count(model)
    precompute(model)
    growth = parameter_count(model) / before
    if growth <= GROWTH:
        return model, "Energies that depend on positions only are stored as tables: it translates as before, faster."
    return build(state, vocabulary), (
        f"Energies are not stored: tables for its longest sentences would make it {growth:.1f} times as large. "
        "posnet-precompute --max-length makes tables for shorter ones; give its result to posnet-export."
    )


@torch.no_grad()
def export(options: argparse.Namespace, scores: Sequence[str]) -> None:
    """Write a model folder as the options of posnet-export say.

    Args:
        options: of the command line.
        scores: lines of Markdown on the model's scores; none if they are not known.

    Raises:
        UsageError: the model, its data or an option cannot be used.
    """
    if options.onnx:
        from posnet_fairseq.inference import onnx_export

        onnx_export.check_installed()
    if options.ctranslate2:
        ctranslate2_export.check_installed()
    state = read_model(options.checkpoint)
    if options.onnx and is_language_model(state):
        raise UsageError(f"--onnx: {options.checkpoint} is a language model; graphs are made of translation models.")
    if options.ctranslate2:
        if is_language_model(state):
            raise UsageError(f"--ctranslate2: {options.checkpoint} is a language model. Leave --ctranslate2 out.")
        cfg = SimpleNamespace(**model_options(state))
        ctranslate2_export.check_model(cfg, options.checkpoint)
    read = read_language_model_vocabulary if is_language_model(state) else read_vocabulary
    vocabulary, data = read(state, options.data)
    model, note = _prepared(options.checkpoint, state, vocabulary)
    if not is_language_model(state):
        refuse_other_dictionaries(options.checkpoint, state, vocabulary, data)
    with about(options.checkpoint):
        weights = weights_of(model, state)
    shortlist = None
    if options.shortlist_from:
        if is_language_model(state):
            raise UsageError(f"--shortlist-from {options.shortlist_from}: a language model translates no words.")
        with console().status("learning which words translate which"):
            shortlist = make_shortlist(options.shortlist_from, vocabulary)
    text = readme(options.out.name, state, weights, vocabulary, data, scores)
    with new_folder(options.out) as folder:
        write_rules(folder, data, vocabulary.languages, **text_options(options))
        if shortlist is not None:
            shortlist.save(folder / SHORTLIST, vocabulary)
        write_model(folder, state, weights, data)
        (folder / "README.md").write_text(text, encoding="utf-8")
        if options.ctranslate2:
            (folder / CTRANSLATE2).mkdir()
            ctranslate2_export.write(model.float(), cfg, vocabulary, folder / CTRANSLATE2)
        if options.onnx:
            onnx_export.write_checked(model.float(), folder, options.checkpoint)
    if note:
        print(note)
    for path in sorted(each for each in options.out.rglob("*") if each.is_file()):
        print(f"{shown(path)}: {path.stat().st_size / 2**20:,.1f} MiB")
