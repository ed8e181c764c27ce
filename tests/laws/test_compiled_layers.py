"""torch.compile takes a layer with any mixer as one graph, for batches of any size, with padding, and in steps."""

import pytest
import torch

from posnet_fairseq.mixers.bases.decoding_state import table_rows
from posnet_fairseq.mixers.bases.offset_matrices import OffsetMixer
from posnet_fairseq.ops.offsets import positions_read
from posnet_fairseq.registry import get_mixer
from support.building import MAX_POSITIONS, build_case, mixer_cases, usual_gate
from support.laws import TOLERANCE

pytestmark = pytest.mark.thorough  # tracing takes seconds; quick: one mixer compiled by itself, in test_banded

CASES = [case for case in mixer_cases() if case.options or case.gate == usual_gate(case)]
STEPS = 5


def of_places(*places):
    """The cases in some places. Tracing takes a minute for loops over offsets of Translution, and for all options."""
    for case in CASES:
        if case.place in places:
            is_slow = case.options or issubclass(get_mixer(case.mixer), OffsetMixer)
            marks = [pytest.mark.slow] if is_slow else []
            yield pytest.param(case, id=str(case), marks=marks)


# torch 2.13 does not trace Translution's own derivatives without gradients: "save_for_backward is not defined".
STEPPING = [case for case in of_places("decoder", "cross") if not case.marks]


def compiled(layer, backend="aot_eager"):
    """Without a graph break. The backend traces forward and backward, and runs the traces as they are."""
    torch._dynamo.reset()
    return torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)


def assert_alike(graph, layer, arguments, select):
    """Results, as a function selects them, and gradients of all parameters."""
    runs = []
    for run in (graph, layer):
        output = select(run(*arguments))
        gradients = torch.autograd.grad(output.square().mean(), [*layer.parameters()], allow_unused=True)
        runs.append((output, gradients))
    torch.testing.assert_close(*runs, **TOLERANCE)


def padded_tokens(batch, length):
    """Tokens, and a mask with padding behind the first sentence."""
    mask = torch.zeros(batch, length, dtype=torch.bool)
    mask[0, length - 3 :] = True
    return torch.randn(batch, length, 16), mask


@pytest.mark.parametrize("case", of_places("encoder"))
def test_encoder_layer(case):
    encoder = build_case(case, encoder_layers=1, decoder_layers=1).encoder
    layer = encoder.layers[0]
    graph = compiled(layer)
    for size in ((3, 8), (2, 11)):
        x, mask = padded_tokens(*size)
        positions = encoder.positions.for_mixers(size[1])
        assert_alike(graph, layer, (x, mask, positions), lambda output, real=~mask: output[real])


@pytest.mark.parametrize("case", of_places("decoder", "cross"))
def test_decoder_layer(case):
    model = build_case(case, encoder_layers=1, decoder_layers=1)
    layer, ratio = model.decoder.layers[0], model.decoder.length_ratio
    graph = compiled(layer)
    for batch, queries, keys in ((3, 6, 8), (2, 9, 11)):
        memory, mask = padded_tokens(batch, keys)
        positions = model.decoder.positions.for_mixers(positions_read(queries, ratio))
        memory_positions = model.encoder.positions.for_mixers(keys)
        arguments = (torch.randn(batch, queries, 16), memory, mask, positions, memory_positions, ratio)
        assert_alike(graph, layer, arguments, lambda output: output[0])


@pytest.mark.parametrize("case", STEPPING)
def test_steps(case):
    model = build_case(case, encoder_layers=1, decoder_layers=1)
    layer, ratio = model.decoder.layers[0], model.decoder.length_ratio
    memory, mask = padded_tokens(3, 8)
    tokens = torch.randn(STEPS, 3, 1, 16)
    results = []
    with torch.no_grad():
        for run in (layer, compiled(layer, "eager")):
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
