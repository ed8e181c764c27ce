"""posnet-export: a precomputed model for other engines."""

import argparse
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from posnet_fairseq.fairseq_plugin.trained_models import build_model
from posnet_fairseq.inference import onnx as export
from posnet_fairseq.inference.checkpoints import about, read_checkpoint
from posnet_fairseq.inference.onnx_translator import OnnxTranslator, until
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import a_path, check_place, path_text

SENTENCES, STEPS = 8, 40


def _greedy(model: Any, sources: Tensor) -> list[list[int]]:
    """Token ids of the model's own greedy translation of each source, the end symbol included."""
    pad, eos = model.decoder.padding_idx, model.decoder.dictionary.eos()
    encoder_out = model.encoder(sources)
    state: dict[str, Any] = {}
    prefix = torch.full((len(sources), 1), eos)
    for _ in range(min(STEPS, model.decoder.max_positions())):
        scores, _ = model.decoder(prefix, encoder_out=encoder_out, incremental_state=state)
        if not scores.isfinite().all():
            raise UsageError("the model's scores are infinite or no numbers. Take an earlier checkpoint.")
        scores[..., pad] = -torch.inf
        prefix = torch.cat([prefix, scores.argmax(dim=-1)], dim=1)
    return [until(row, eos) for row in prefix[:, 1:].tolist()]


def _random_sources(model: Any) -> Tensor:
    """(B, M) token ids of sentences of random words and lengths, padded on the right."""
    pad, eos = model.encoder.padding_idx, model.decoder.dictionary.eos()
    longest = min(STEPS, model.encoder.max_positions())
    generator = torch.Generator().manual_seed(1)
    words = model.encoder.embed_tokens.num_embeddings
    sources = torch.randint(min(eos + 2, words - 1), words, (SENTENCES, longest), generator=generator)
    for row, length in zip(sources, torch.randint(1, longest + 1, (SENTENCES,), generator=generator), strict=True):
        row[length - 1] = eos
        row[length:] = pad
    return sources


@command
@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    """Entry point of posnet-export."""
    parser = argparse.ArgumentParser(
        prog="posnet-export",
        description="Write the encoder and a step of the decoder of a precomputed model as graphs for onnxruntime, and "
        "check that they translate as the model does.",
    )
    parser.add_argument("checkpoint", type=path_text, help="checkpoint that posnet-precompute wrote")
    parser.add_argument(
        "--onnx", type=a_path, required=True, metavar="FOLDER", help="folder to write, which must not exist"
    )
    options = parser.parse_args(arguments)
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} missing. Run pip install -e '.[export]' in the posnet folder.")
    folder = options.onnx
    if os.path.lexists(folder):
        raise UsageError(f"--onnx {folder} is there already. Give another folder, or remove it.")
    check_place(folder, "--onnx")
    state = read_checkpoint(options.checkpoint)
    with about(options.checkpoint):
        model = build_model(state).float()
    export.check(model, options.checkpoint)

    with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name[:40]}.") as temporary:
        with Console(stderr=True).status("tracing the encoder and a step of the decoder"):
            export.write(model, temporary)
        sources = _random_sources(model)
        expected = _greedy(model, sources)
        found = OnnxTranslator(temporary).translate(sources.numpy(), min(STEPS, model.decoder.max_positions()))
        same = sum(map(list.__eq__, found, expected))
        if same < SENTENCES:
            raise UsageError(
                f"{SENTENCES - same} of {SENTENCES} random sentences are translated otherwise by onnxruntime: nothing "
                "was written. Please report this with the versions that posnet-doctor prints."
            )
        folder.mkdir()
        for path in Path(temporary).iterdir():
            path.rename(folder / path.name)
    print(f"{SENTENCES} random sentences are translated the same by onnxruntime, greedily, token by token.")
    for path in sorted(folder.iterdir()):
        print(f"{path}: {path.stat().st_size / 2**20:,.1f} MiB")
