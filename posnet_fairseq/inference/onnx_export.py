"""Graphs for onnxruntime, written only if they translate as the model does, and graphs with 8-bit weights."""

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.inference import onnx
from posnet_fairseq.inference.onnx_translator import OnnxTranslator, until
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import console
from posnet_fairseq.shared.records import digest, sealed
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.transformer.causal import DecoderState

SENTENCES, STEPS = 8, 40


@torch.no_grad()
def write_checked(model: Any, folder: Path, name: str) -> None:
    """Write graphs of the model of a checkpoint, also with 8-bit weights, and translate random sentences with them.

    The model is in evaluation mode, in float32 on the CPU. It is changed.
    """
    onnx.check(model, name)
    with console().status("tracing the encoder and a step of the decoder"):
        onnx.write(model, folder)
        write_int8(model, folder)
    sources = random_sources(model)
    expected, steps = greedy(model, sources), min(STEPS, model.decoder.max_positions())
    same, same_int8 = (
        sum(map(list.__eq__, OnnxTranslator(folder, int8).translate(sources.numpy(), steps), expected))
        for int8 in (False, True)
    )
    if same < SENTENCES:
        raise UsageError(
            f"{SENTENCES - same} of {SENTENCES} random sentences are translated otherwise by onnxruntime: nothing was "
            "written. Please report this with the versions that posnet-doctor prints."
        )
    facts = json.loads((folder / onnx.FACTS).read_text())
    hashes = {path.name: digest(path, "sha256") for path in sorted(folder.glob("*.onnx"))}
    write_lines(folder / onnx.FACTS, [json.dumps(sealed(facts | {"files": hashes}), indent=1)])
    print(
        f"{SENTENCES} random sentences are translated the same by onnxruntime, greedily, token by token; {same_int8} "
        "of them also with 8-bit weights."
    )


def write_int8(model: Any, folder: Path) -> None:
    """Write ``encoder.int8.onnx`` and ``step.int8.onnx``: products of 8-bit numbers, with a scale for each row.

    The output projection has a weight of its own there: shared with the embedding, it would be converted and transposed
    at each step, which takes longer than everything else.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    projection = model.decoder.output_projection
    projection.weight = nn.Parameter(projection.weight.detach().clone())
    logging.getLogger().setLevel(logging.ERROR)  # it advises a step that is not needed here
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        onnx.write(model, temporary)
        for part in onnx.GRAPHS:
            graph, quantized = Path(temporary, f"{part}.onnx"), folder / f"{part}.int8.onnx"
            quantize_dynamic(graph, quantized, per_channel=True, weight_type=QuantType.QInt8)


def greedy(model: Any, sources: Tensor) -> list[list[int]]:
    """Return token ids of the model's greedy translation of each source (B, M), the end symbols included."""
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
    """Return (B, M) token ids of sentences of random words and lengths, padded on the right."""
    pad, eos = Dictionary().pad(), Dictionary().eos()
    longest = min(STEPS, model.encoder.max_positions())
    generator = torch.Generator().manual_seed(1)
    words = model.encoder.embed_tokens.num_embeddings
    sources = torch.randint(min(eos + 2, words - 1), words, (SENTENCES, longest), generator=generator)
    for row, length in zip(sources, torch.randint(1, longest + 1, (SENTENCES,), generator=generator), strict=True):
        row[length - 1] = eos
        row[length:] = pad
    return sources
