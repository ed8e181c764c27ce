"""Graphs for onnxruntime, written only if they translate as the model does, and graphs with 8-bit weights."""

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.inference import onnx
from posnet_fairseq.inference.onnx_model import OnnxModel
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import console
from posnet_fairseq.shared.records import digest, sealed
from posnet_fairseq.text.dictionary import Dictionary

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
    words = model.decoder.embed_tokens.num_embeddings
    expected = greedy(model, sources, words)
    same, same_int8 = (
        sum(map(list.__eq__, greedy(OnnxModel(folder, int8), sources, words), expected)) for int8 in (False, True)
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


def greedy(model: Any, sources: Sequence[Tensor], words: int) -> list[list[int]]:
    """Return token ids of the model's greedy translation of each source, the end symbols included."""
    dictionary = Dictionary(map(str, range(words - Dictionary.nspecial)))
    search = BeamSearch([model], dictionary, SearchSettings(beam=1, max_len_b=STEPS))
    return [best.tokens.tolist() for best, *_ in search(sources)]


def random_sources(model: Any) -> list[Tensor]:
    """Return token ids of sentences of random words and lengths, (M,) each, with end symbols."""
    eos, longest = Dictionary().eos(), min(STEPS, model.encoder.max_positions())
    generator = torch.Generator().manual_seed(1)
    words = model.encoder.embed_tokens.num_embeddings
    sources = torch.randint(min(eos + 2, words - 1), words, (SENTENCES, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (SENTENCES,), generator=generator)
    return [torch.cat([row[: length - 1], torch.tensor([eos])]) for row, length in zip(sources, lengths, strict=True)]
