"""torch.compile takes a layer with any mixer as one graph, for batches of any size, with padding, and in steps."""

import pytest
import torch

from posnet_fairseq.mixers.bases.decoding_state import table_rows
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.ops.offsets import positions_read
from posnet_fairseq.registry import get_mixer
from support.building import MAX_POSITIONS, USUAL, build_case, few_offsets
from support.laws import TOLERANCE

pytestmark = pytest.mark.thorough  # tracing takes seconds; quick: one mixer compiled by itself, in test_banded

STEPS = 5


def of_places(*places):
    """The cases in some places; those of α-Translution have more offsets than tokens, those of Translution few."""
    cases = [case for case in USUAL if case.place in places]
    return [few_offsets(case) if case.mixer == "translution" else case for case in cases]


# torch 2.13 does not trace Translution's own derivatives without gradients: "save_for_backward is not defined".
STEPPING = [case for case in of_places("decoder", "cross") if not issubclass(get_mixer(case.mixer), OffsetMixer)]


def compiled(layer):
    """Without a graph break; "eager" runs the graph as it is."""
    torch._dynamo.reset()
    return torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")


def padded_tokens(batch, length):
    """Tokens, and a mask with padding behind the first sentence."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[0, length - 3 :] = True
    return torch.randn(batch, length, 16), mask


@pytest.mark.parametrize("case", of_places("encoder"), ids=str)
def test_encoder_layer(case):
    encoder = build_case(case, encoder_layers=1, decoder_layers=1).encoder
    layer = encoder.layers[0]
    graph = compiled(layer)
    for size in ((3, 8), (2, 11)):
        x, mask = padded_tokens(*size)
        positions = encoder.positions.for_mixers(size[1])
        (found, _), (expected, _) = (run(x, None, mask, positions) for run in (graph, layer))
        torch.testing.assert_close(found[~mask], expected[~mask], **TOLERANCE)


@pytest.mark.parametrize("case", of_places("decoder", "cross"), ids=str)
def test_decoder_layer(case):
    model = build_case(case, encoder_layers=1, decoder_layers=1)
    layer, ratio = model.decoder.layers[0], model.decoder.length_ratio
    graph = compiled(layer)
    for batch, queries, keys in ((3, 6, 8), (2, 9, 11)):
        memory, mask = padded_tokens(batch, keys)
        positions = model.decoder.positions.for_mixers(positions_read(queries, ratio))
        memory_positions = model.encoder.positions.for_mixers(keys)
        arguments = (torch.randn(batch, queries, 16), memory, mask, positions, memory_positions, ratio)
        torch.testing.assert_close(graph(*arguments)[0], layer(*arguments)[0], **TOLERANCE)


@pytest.mark.parametrize("case", STEPPING, ids=str)
def test_steps(case):
    model = build_case(case, encoder_layers=1, decoder_layers=1)
    layer, ratio = model.decoder.layers[0], model.decoder.length_ratio
    memory, mask = padded_tokens(3, 8)
    tokens = torch.randn(STEPS, 3, 1, 16)
    results = []
    with torch.no_grad():
        for run in (layer, compiled(layer)):
            memory_positions = model.encoder.positions.for_mixers(8)
            cross = layer.cross_attn.init_state(
                3, memory, padding_mask=mask, memory_positions=memory_positions, length_ratio=ratio
            )
            states = layer.self_attn.init_state(3), cross
            outputs = []
            for step, token in enumerate(tokens):
                rows = table_rows(step, MAX_POSITIONS)
                positions = model.decoder.positions.for_mixers(positions_read(rows, ratio))
                outputs.append(run(token, None, None, positions, None, ratio, states=states, rows=rows)[0])
            results.append(torch.cat(outputs, dim=1))
    torch.testing.assert_close(*results, **TOLERANCE)
