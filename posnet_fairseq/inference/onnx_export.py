"""Graphs for onnxruntime, written only if they translate as the model does."""

import importlib.util
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from posnet_fairseq.inference import onnx
from posnet_fairseq.inference.onnx_translator import OnnxTranslator, until
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.transformer.causal import DecoderState

SENTENCES, STEPS = 8, 40


def check_installed() -> None:
    """Refuse to begin without the packages that graphs need.

    Raises:
        UsageError: one is missing.
    """
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} missing. Run pip install -e '.[export]' in the posnet folder.")


@torch.no_grad()
def write_checked(model: Any, folder: Path, name: str) -> None:
    """Write the graphs of :func:`posnet_fairseq.inference.onnx.write`, and translate random sentences with them.

    Args:
        model: translation model in evaluation mode, float32, on the CPU. It is changed.
        folder: which is there.
        name: of the model's checkpoint.

    Raises:
        UsageError: the model has no graphs, or onnxruntime translates otherwise.
    """
    onnx.check(model, name)
    with Console(stderr=True).status("tracing the encoder and a step of the decoder"):
        onnx.write(model, folder)
    sources = random_sources(model)
    expected = greedy(model, sources)
    found = OnnxTranslator(folder).translate(sources.numpy(), min(STEPS, model.decoder.max_positions()))
    same = sum(map(list.__eq__, found, expected))
    if same < SENTENCES:
        raise UsageError(
            f"{SENTENCES - same} of {SENTENCES} random sentences are translated otherwise by onnxruntime: nothing was "
            "written. Please report this with the versions that posnet-doctor prints."
        )
    print(f"{SENTENCES} random sentences are translated the same by onnxruntime, greedily, token by token.")


def greedy(model: Any, sources: Tensor) -> list[list[int]]:
    """Token ids of the model's own greedy translation of each source, the end symbol included.

    Args:
        model: translation model in evaluation mode.
        sources: (B, M) token ids with end symbols, padded on the right.

    Raises:
        UsageError: a score is infinite or NaN.
    """
    pad, eos = Dictionary().pad(), Dictionary().eos()
    encoded, state = model.encoder.encode(sources), DecoderState()
    tokens = [torch.full((len(sources), 1), eos)]
    for _ in range(min(STEPS, model.decoder.max_positions())):
        scores = model.decoder.output_layer(model.decoder.features(tokens[-1], encoded, state).x)
        if not scores.isfinite().all():
            raise UsageError("the model's scores are infinite or no numbers. Take an earlier checkpoint.")
        scores[..., pad] = -torch.inf
        tokens.append(scores.argmax(dim=-1))
    return [until(row, eos) for row in torch.cat(tokens[1:], dim=1).tolist()]


def random_sources(model: Any) -> Tensor:
    """(B, M) token ids of sentences of random words and lengths, padded on the right."""
    pad, eos = Dictionary().pad(), Dictionary().eos()
    longest = min(STEPS, model.encoder.max_positions())
    generator = torch.Generator().manual_seed(1)
    words = model.encoder.embed_tokens.num_embeddings
    sources = torch.randint(min(eos + 2, words - 1), words, (SENTENCES, longest), generator=generator)
    for row, length in zip(sources, torch.randint(1, longest + 1, (SENTENCES,), generator=generator), strict=True):
        row[length - 1] = eos
        row[length:] = pad
    return sources
