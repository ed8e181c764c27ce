"""The work of posnet-precompute: a checkpoint with tables in place of energies."""

import sys
from pathlib import Path
from typing import Any

from posnet_fairseq.inference import checkpoints
from posnet_fairseq.inference.checkpoints import POSITION_LIMITS, State, is_language_model
from posnet_fairseq.inference.model_loading import build_model, weights_of
from posnet_fairseq.inference.stored_energies import is_precomputed, mixers_with_energies, parameter_count, precompute
from posnet_fairseq.inference.weights import MIXERS
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError, about, flag
from posnet_fairseq.text.binary_format import lengths_and_type


def write_precomputed(
    path: str, out: str, length: int | None = None, data: str | None = None, or_copy: bool = False
) -> list[str]:
    """Write a precomputed checkpoint; return lines about it. Arguments are the options of posnet-precompute."""
    checkpoints.check_output(out, "--out", [path])
    state = checkpoints.read_checkpoint(path)
    if length is not None:
        _check_length(length, state, data)
    with about(path):
        model: Any = build_model(state)
    if is_precomputed(model):
        raise UsageError(f"{path} is precomputed already. Translate with it as it is.")
    if not mixers_with_energies(model):
        if or_copy:
            state["extra_state"] = {**(state.get("extra_state") or {}), "copied": str(path)}
            checkpoints.write_checkpoint(state, out)
            kept = "" if length is None else f" Its maximum length is unchanged: --max-length {length} limits tables."
            return [f"{path} has nothing to precompute: {out} is a copy of it.{kept}"]
        mixers = sorted({str(module.name) for module in model.modules() if isinstance(module, TokenMixer)})
        reason = f"its mixers ({', '.join(mixers)}) make no energies from positions alone"
        raise UsageError(f"{path} has nothing to precompute: {reason}. Translate with it as it is.")
    before = f"{path}: {parameter_count(model):,} parameters, {_size(path)}"
    if length is not None:
        model = build_model(state, max_length=length)
        for part in ("model", "task"):
            state["cfg"][part] |= dict.fromkeys(POSITION_LIMITS, length)
    precompute(model)
    with about(path):
        weights = weights_of(model, state)
    if MIXERS in state["model"]:  # for fairseq, which compares them with the options that it is given
        weights[MIXERS] = state["model"][MIXERS]
    checkpoints.write_checkpoint(checkpoints.for_inference(state, weights, precomputed=str(path)), out)
    return [before, f"{out}: {parameter_count(model):,} parameters, {_size(out)}"]


def _check_length(length: int, state: State, data: str | None) -> None:
    """Refuse tables that are larger than the model's, or too small for the sentences of the data."""
    if is_language_model(state):
        raise UsageError(
            f"--max-length {length}: tables of a language model are made for all that it takes, --tokens-per-sample of "
            "its training. Leave it out."
        )
    trained = vars(checkpoints.model_options(state))
    limit = min(POSITION_LIMITS, key=lambda name: trained[name])
    folders = str(data or state["cfg"]["task"].get("data")).split(":")
    longest = {name: size for folder in folders for name, size in _longest_sentences(folder).items()}
    name = max(longest, key=lambda name: longest[name], default="")
    problem = ""
    if not 1 <= length <= trained[limit]:
        problem = f"give 1 or more, and at most the model's {flag(limit)} {trained[limit]}"
    elif data and not longest:
        problem = f"{data} holds no binarized set to translate. Give by --data what fairseq-preprocess wrote"
    elif longest and longest[name] > length:
        problem = f"{name} has a sentence of {longest[name]} tokens (its end symbol counted). Give that or more, or "
        problem += "other data by --data"
    if problem:
        raise UsageError(f"--max-length {length}: {problem}.")
    if not longest:
        print(
            f"posnet-precompute: {', '.join(folders)}, where the model was trained, holds no sets now: nothing tells "
            f"whether {length} tokens are enough. --data names another place.",
            file=sys.stderr,
        )


def _longest_sentences(folder: str) -> dict[str, int]:
    """Return the length of the longest sentence in each side of each set but the training set, by name of file."""
    sets = sorted(path.with_suffix("") for path in Path(folder).glob("*.*-*.*.idx"))
    sizes = {str(path): lengths_and_type(path)[0] for path in sets if not path.name.startswith("train")}
    return {name: int(of_set.max()) for name, of_set in sizes.items() if of_set is not None and len(of_set)}


def _size(path: str) -> str:
    return f"{Path(path).stat().st_size / 2**20:,.1f} MiB"
