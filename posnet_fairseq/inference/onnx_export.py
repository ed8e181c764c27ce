"""Graphs of a precomputed model for other engines: an encoder, and a step of the decoder, also with 8-bit weights.

A step takes and returns the decoder's state. The parts that belong to self-attention start as zeros or empty, as
``graphs.json`` says; the parts that belong to cross-attention come from the encoder. Graphs are kept only if
onnxruntime translates with them as the model does.
"""

import json
import logging
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from posnet_fairseq._version import __version__
from posnet_fairseq.inference.onnx_model import FACTS, OnnxModel
from posnet_fairseq.inference.search.beam import BeamSearch
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.stored_energies import is_precomputed, mixers_with_energies
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.energies import StoredEnergy
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import write_lines
from posnet_fairseq.shared.progress import console
from posnet_fairseq.shared.records import digest, sealed
from posnet_fairseq.shared.schema import loads
from posnet_fairseq.text.dictionary import Dictionary
from posnet_fairseq.text.synthetic import dictionary
from posnet_fairseq.transformer.decoder import DecoderState
from posnet_fairseq.transformer.encoder import EncoderOutput

OPSET = 20
PLACES = ("self_attn", "cross_attn")
# Tokens of the sentences that graphs are traced with.
EXAMPLE = 5
# Of the random sentences that the graphs must translate as the model does.
SENTENCES, STEPS = 8, 40


def check_exportable(model: Any, name: str) -> None:
    """Refuse a translation model whose graphs cannot be written; `name` is that of its checkpoint."""
    if mixers_with_energies(model) and not is_precomputed(model):
        raise UsageError(f"{name} is not precomputed. Run posnet-precompute on it first.")
    for mixer in (module for module in model.modules() if isinstance(module, TokenMixer)):
        steps_alone = mixer.place == "decoder" and mixer.constant_state  # its full pass is in no graph
        if not isinstance(mixer, PositionBasedMixer) and mixer.name != "attention" and not steps_alone:
            raise UsageError(
                f"{name}: its {mixer.place} has the mixer {mixer.name}. Models of position-based mixers and attention "
                "can be exported, with recurrent mixers in the decoder."
            )


@dataclass(frozen=True)
class Part:
    """One tensor of the decoder's state."""

    layer: int
    place: str  # self_attn or cross_attn
    name: str  # of the tensor in the mixer's state
    example: Tensor  # (R, H, ..., d) value after two steps
    is_open: bool  # whether its dimension 2 has any length: the source's, or in self-attention one more in each step

    @property
    def label(self) -> str:
        """Return the name of the tensor in the graphs."""
        return f"{self.place}_{self.layer}_{self.name}"


class Encoder(nn.Module):
    """Maps sources (B, M) to the mask of padding (B, M) and the decoder's cross-attention state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return the mask of padding (B, M), True at padding, and the parts of the state, (B, H, M, d) each."""
        padding_mask = tokens.eq(self.encoder.padding_idx)
        x = self.encoder.positions.add_to(self.encoder.embed_tokens(tokens))
        for layer in self.encoder.layers:
            normed = layer.self_attn_norm(x)
            # Weights that are asked for are made in one plain way, with no choices that depend on the data.
            mixed = layer.self_attn(normed, padding_mask=padding_mask, need_weights=layer.self_attn.static)
            x = layer.feed_forward(x + (mixed[0] if layer.self_attn.static else mixed))
        memory = self.encoder.final_norm(x)
        states = []
        for layer in self.decoder.layers:
            state = DecodingState(None)
            context = MixingContext(state=state, device=memory.device)
            layer.cross_attn.value(memory, context)
            if hasattr(layer.cross_attn, "keys"):
                layer.cross_attn.keys(memory, context)
            states += [state.rows[name] for name in sorted(state.rows)]
        return padding_mask, *states


class Step(nn.Module):
    """Maps the last token of each hypothesis, its position and the decoder's state to scores and the new state."""

    def __init__(self, model: Any, parts: Sequence[Part]) -> None:
        super().__init__()
        self.decoder, self.parts = model.decoder, parts
        self.length_ratio = model.decoder.length_ratio  # as numbers, which become part of the graph

    def forward(self, tokens: Tensor, position: Tensor, padding_mask: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Return scores (R, vocabulary), and the parts of the new state that belong to self-attention.

        `tokens` (R,) are those of the last step, `position` (1,) is theirs, from 0 on, and `padding_mask` (R, M) is
        that of the sources, True at padding. The states are all parts of the decoder's, (R, H, ..., d) each.
        """
        positions = self.decoder.positions
        x = positions.add_at(self.decoder.embed_tokens(tokens[:, None]), position)
        mixing = []
        for _ in self.decoder.layers:
            cross = DecodingState(None, padding_mask=padding_mask, length_ratio=self.length_ratio)
            cross.sentences = 0  # open in the graph
            mixing.append((DecodingState(None), cross))
            for each in mixing[-1]:
                each.position = position  # type: ignore[assignment]  # a part of the graph
        for part, state in zip(self.parts, states, strict=True):
            mixing[part.layer][PLACES.index(part.place)].rows[part.name] = state
        for layer, of_layer in zip(self.decoder.layers, mixing, strict=True):
            x, _ = layer(x, None, states=of_layer, rows=positions.max_positions)
        new = [mixing[part.layer][0].rows[part.name] for part in self.parts if part.place == "self_attn"]
        return self.decoder.output_layer(self.decoder.final_norm(x))[:, 0], *new


def state_parts(model: Any, encoded: EncoderOutput) -> list[Part]:
    """Return the parts of the decoder's state, in the order of layers, two steps into a batch."""
    token, state, seen = torch.full((len(encoded.states), 1), Dictionary().eos()), DecoderState(), []
    for _ in range(2):
        with torch.enable_grad():  # a graph overwrites no state, as if there were gradients
            model.decoder.features(token, encoded, state)
        seen.append(
            {
                (index, place, name): tensor
                for index, states in enumerate(zip(state.layers, encoded.cross_states, strict=True))
                for place, of_place in zip(PLACES, states, strict=True)
                for name, tensor in sorted(of_place.rows.items())
            }
        )
    return [
        Part(*key, tensor.detach(), key[1] == "cross_attn" or tensor.shape != seen[0][key].shape)
        for key, tensor in seen[1].items()
    ]


def write_graphs(model: Any, folder: str | Path) -> None:
    """Write ``encoder.onnx``, ``step.onnx`` and ``graphs.json``, which tells how the state starts, into a folder.

    The model is one that :func:`check_exportable` accepts, in evaluation mode on the CPU. It is changed.
    """
    for energy in (module for module in model.modules() if isinstance(module, StoredEnergy)):
        table: Tensor = energy.stored
        # A row and a column more than any sentence needs: torch.export treats a slice of a whole dimension as another
        # case than all shorter slices.
        for dim in (1, 2) if energy.reach is None else (1,) if table.size(1) > 1 else ():
            table = torch.cat([table, table.narrow(dim, -1, 1)], dim=dim)
        energy.stored = nn.Parameter(table, requires_grad=False)
    # The examples that the graphs are traced with: two steps into three sentences.
    tokens = torch.full((3, EXAMPLE), Dictionary().eos())
    encoded = model.encoder.encode(tokens)
    folder, parts = Path(folder), state_parts(model, encoded)
    longest = {"source": model.encoder.max_positions(), "target": model.decoder.max_positions()}
    rows, source = Dim("rows"), Dim("source", max=longest["source"])
    lengths = {"self_attn": Dim("made", max=longest["target"]), "cross_attn": source}
    shapes = tuple({0: rows} | ({2: lengths[part.place]} if part.is_open else {}) for part in parts)
    labels, states = [part.label for part in parts], [part.example for part in parts]
    made = [part.label for part in parts if part.place == "self_attn"]
    starts = [(part.example[:, :, :0] if part.is_open else part.example).shape[1:] for part in parts]
    _export(
        *(Encoder(model), (tokens,), folder / "encoder.onnx"),
        input_names=["tokens"],
        output_names=["padding_mask", *(label for label in labels if label not in made)],
        dynamic_shapes=({0: rows, 1: source},),
    )
    _export(
        *(Step(model, parts), (tokens[:, 0], torch.tensor([2]), encoded.padding_mask, *states), folder / "step.onnx"),
        input_names=["tokens", "position", "padding_mask", *labels],
        output_names=["scores", *(f"new_{label}" for label in made)],
        dynamic_shapes=({0: rows}, {}, {0: rows, 1: source}, shapes),
    )
    facts = {
        "pad": model.decoder.padding_idx,
        "eos": Dictionary().eos(),
        "longest": longest,
        "starts": {label: list(start) for label, start in zip(labels, starts, strict=True) if label in made},
        "versions": {"posnet": __version__, "torch": torch.__version__},
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n")


def _export(graph: nn.Module, example: tuple[Tensor, ...], path: Path, **how: Any) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about libraries that are not needed here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fixed: Any = {"opset_version": OPSET, "external_data": False, "verbose": False}
        torch.onnx.export(graph.eval(), example, str(path), **how, **fixed)


@torch.no_grad()
def write_checked(model: Any, folder: Path) -> None:
    """Write graphs of a model that can be exported, also with 8-bit weights, and translate random sentences.

    The model is in evaluation mode, in float32 on the CPU. It is changed.
    """
    with console().status("tracing the encoder and a step of the decoder"):
        write_graphs(model, folder)
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
    facts = loads((folder / FACTS).read_text())
    hashes = {path.name: digest(path) for path in sorted(folder.glob("*.onnx"))}
    write_lines(folder / FACTS, [json.dumps(sealed(facts | {"files": hashes}), indent=1)])
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
        write_graphs(model, temporary)
        for part in ("encoder", "step"):
            graph, quantized = Path(temporary, f"{part}.onnx"), folder / f"{part}.int8.onnx"
            quantize_dynamic(graph, quantized, per_channel=True, weight_type=QuantType.QInt8)


def greedy(model: Any, sources: Sequence[Tensor], words: int) -> list[list[int]]:
    """Return token ids of the model's greedy translation of each source, the end symbols included."""
    search = BeamSearch([model], dictionary(words), SearchSettings(beam=1, max_len_b=STEPS))
    return [best.tokens.tolist() for best, *_ in search(sources)]


def random_sources(model: Any) -> list[Tensor]:
    """Return token ids of sentences of random words and lengths, (M,) each, with end symbols."""
    eos, longest = Dictionary().eos(), min(STEPS, model.encoder.max_positions())
    generator = torch.Generator().manual_seed(1)
    words = model.encoder.embed_tokens.num_embeddings
    sources = torch.randint(min(eos + 2, words - 1), words, (SENTENCES, longest), generator=generator)
    lengths = torch.randint(1, longest + 1, (SENTENCES,), generator=generator)
    return [torch.cat([row[: length - 1], torch.tensor([eos])]) for row, length in zip(sources, lengths, strict=True)]
