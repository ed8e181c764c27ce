"""The work of posnet-precompute: a checkpoint with tables in place of energies."""

import argparse
import sys
from pathlib import Path
from typing import Any

from posnet_fairseq.inference.checkpoints import (
    POSITION_LIMITS,
    State,
    about,
    check_output,
    for_inference,
    is_language_model,
    model_options,
    read_checkpoint,
    write_checkpoint,
)
from posnet_fairseq.inference.models import build_language_model, build_model, weights_of
from posnet_fairseq.inference.precompute import is_precomputed, mixers_with_energies, parameter_count, precompute
from posnet_fairseq.inference.weights import without_mixer_versions
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.text.binary_format import check


def _longest_sentences(folder: str) -> dict[str, int]:
    """Return the length of the longest sentence in each side of each set but the training set, by name of file."""
    sets = sorted(path.with_suffix("") for path in Path(folder).glob("*.*-*.*.idx"))
    sizes = {str(path): check(path)[0] for path in sets if not path.name.startswith("train")}
    return {name: int(of_set.max()) for name, of_set in sizes.items() if of_set is not None and len(of_set)}


def _check_length(length: int, state: State, data: str | None) -> None:
    """Refuse tables that are larger than the model's, or too small for the sentences of the data."""
    trained = model_options(state)
    limit = min(POSITION_LIMITS, key=lambda name: trained[name])
    folders = str(data or state["cfg"]["task"].get("data")).split(":")
    longest = {name: size for folder in folders for name, size in _longest_sentences(folder).items()}
    if data and not longest:
        raise UsageError(f"--data {data} holds no binarized set to translate. Give what fairseq-preprocess wrote.")
    name = max(longest, key=lambda name: longest[name], default="")
    too_long = f"{name} has a sentence of {longest.get(name)} tokens (its end symbol counted)"
    if longest and longest[name] > trained[limit]:
        raise UsageError(
            f"--max-length {length}: {too_long}, and the model was trained with {flag(limit)} {trained[limit]}, so no "
            "length serves. Leave --max-length out for tables of all that the model takes, shorten the sentence, or "
            "give other data by --data."
        )
    if not 1 <= length <= trained[limit]:
        raise UsageError(
            f"--max-length {length}: give 1 or more, and at most the model's {flag(limit)} {trained[limit]}."
        )
    if not longest:
        print(
            f"posnet-precompute: {', '.join(folders)}, where the model was trained, holds no sets now: nothing tells "
            f"whether {length} tokens are enough. --data names another place.",
            file=sys.stderr,
        )
    elif longest[name] > length:
        raise UsageError(f"--max-length {length}: {too_long}. Give that or more, or other data by --data.")


def _size(path: str) -> str:
    return f"{Path(path).stat().st_size / 2**20:,.1f} MiB"


def write_precomputed(options: argparse.Namespace) -> None:
    """Write a precomputed checkpoint as the options of posnet-precompute say.

    Raises:
        UsageError: the checkpoint or an option cannot be used.
    """
    check_output(options.out, "--out", [options.checkpoint])
    state = read_checkpoint(options.checkpoint)
    generates = is_language_model(state)
    if options.max_length is not None:
        if generates:
            raise UsageError(
                f"--max-length {options.max_length}: tables of a language model are made for all that it takes, "
                f"{flag('tokens_per_sample')} of its training. Leave it out."
            )
        _check_length(options.max_length, state, options.data)
    with about(options.checkpoint):
        model: Any = build_language_model(state) if generates else build_model(state)
    if is_precomputed(model):
        raise UsageError(f"{options.checkpoint} is precomputed already. Use it as it is.")
    if not mixers_with_energies(model):
        if options.or_copy:
            state["extra_state"] = {**(state.get("extra_state") or {}), "copied": str(options.checkpoint)}
            write_checkpoint(state, options.out)
            print(f"{options.checkpoint} has nothing to precompute: {options.out} is a copy of it.")
            return
        mixers = sorted({str(module.name) for module in model.modules() if isinstance(module, TokenMixer)})
        raise UsageError(
            f"{options.checkpoint} has nothing to precompute: its mixers ({', '.join(mixers)}) make no energies from "
            "positions alone. Translate with it as it is."
        )
    before = f"{options.checkpoint}: {parameter_count(model):,} parameters, {_size(options.checkpoint)}"
    if options.max_length is not None:
        model = build_model(state, max_length=options.max_length)
        for part in ("model", "task"):
            state["cfg"][part] |= dict.fromkeys(POSITION_LIMITS, options.max_length)
    precompute(model)
    with about(options.checkpoint):
        weights = weights_of(model, state)
    # For fairseq, which compares them with the options that it is given.
    weights |= {
        name: state["model"][name] for name in state["model"].keys() - without_mixer_versions(state["model"]).keys()
    }
    write_checkpoint(for_inference(state, weights, precomputed=str(options.checkpoint)), options.out)
    print(before)
    print(f"{options.out}: {parameter_count(model):,} parameters, {_size(options.out)}")
