"""The linear-cost form and the constant state of mixers that clip offsets, against their dense form."""

import pytest
import torch

from posnet_fairseq.mixers.bases import position_based
from posnet_fairseq.mixers.bases.banded import append
from posnet_fairseq.ops import band, static_mixing
from posnet_fairseq.ops.static_mixing import mix_real
from posnet_fairseq.shared.errors import UsageError
from support.building import BANDED, BANDED_IN_PLACES, build_mixer, random_banded_case, vectors

CLOSE = {"rtol": 0, "atol": 1e-9}


def run(mixer, query, memory, real, context, monkeypatch, fewest_blocks):
    monkeypatch.setattr(band, "FEWEST_BLOCKS", fewest_blocks)
    output = mixer(query, memory, **context)[real]
    inputs = [query, memory, context["positions"], *mixer.parameters()]
    cotangent = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return output, torch.autograd.grad(output, inputs, cotangent, allow_unused=True)


@pytest.mark.parametrize(("name", "options", "place"), BANDED_IN_PLACES, ids=str)
@pytest.mark.parametrize("seed", range(8))
def test_band_equals_dense(monkeypatch, name, options, place, seed):
    case = random_banded_case(name, options, place, seed)
    dense, dense_gradients = run(*case, monkeypatch, fewest_blocks=10**9)
    banded, banded_gradients = run(*case, monkeypatch, fewest_blocks=0)
    torch.testing.assert_close(banded, dense, **CLOSE)
    torch.testing.assert_close(banded_gradients, dense_gradients, **CLOSE)


@pytest.mark.parametrize(("name", "options"), BANDED, ids=str)
@pytest.mark.parametrize("beam", [1, 5])
def test_constant_state_equals_the_full_pass_under_reorders_at_every_step(name, options, beam):
    steps, generator = 301, torch.Generator().manual_seed(beam)
    options = options if name == "gaussiannet" else options | {"clip_distance": 7}
    mixer = build_mixer(name, "decoder", "gelu", max_positions=steps, **options)
    positions = vectors(steps)["positions"]
    state, sizes = mixer.init_state(3 * beam), set()
    rows = 3 * beam
    history = torch.empty(rows, 0, 8, dtype=torch.float64)
    with torch.no_grad():
        for step in range(steps):
            new = torch.randn(len(history), 1, 8, dtype=torch.float64, generator=generator)
            history = torch.cat([history, new], dim=1)
            output = mixer.step(new, state, positions, rows=steps)
            if step in (0, 1, 6, 7, 8, 20, 255, 300):
                full = mixer(history, history, positions=positions)
                torch.testing.assert_close(output[:, 0], full[:, -1], **CLOSE)
            sizes.add(state.rows["ancestors"].nbytes / len(history) + state.values.nbytes / rows)
            order = torch.randint(beam, (len(history) // beam, beam), generator=generator)
            order = (order + torch.arange(0, len(history), beam)[:, None])[1 if step == 100 else 0 :].flatten()
            state.reorder(order)
            history = history[order]
    # Bytes of a hypothesis, in float64: values, their sums where there are tails, and the rows of ancestors.
    assert sizes == {8 * (mixer.band.clip_distance + 1) * ((1 + mixer.tails) * mixer.embed_dim + 1)}


def test_sums_of_long_sentences_stay_in_range_in_half_precision():
    """4,000 values of 100 sum to more than the largest number in float16."""
    length, mask = 4000, torch.zeros(2, 4000, dtype=torch.bool)
    mask[1, 3000:] = True
    which = band.Band(2, tails=True, causal=False)
    weights = static_mixing.BandWeights.softmax(which, (1, 1), torch.zeros(1, length, 5), length)
    value = torch.full((2, 1, length, 1), 100.0, dtype=torch.float16)
    torch.testing.assert_close(weights.mix(value), value)
    real = value.masked_fill(mask[:, None, :, None], 0)
    torch.testing.assert_close(mix_real(weights, real, weights.real_share(mask))[0], value[0])
    slots = torch.zeros(1, 1, 3, 1)
    for step in range(length):
        slots = append(slots, value[:1, :, :1], torch.tensor([step]), band.Band(2, tails=True, causal=True))
    assert slots.flatten().tolist() == [100, 100, 100 * (length - 2)]


def test_gradients_of_long_sentences_stay_in_range_in_half_precision():
    """That of a far token's weight is a sum over all far tokens."""
    which = band.Band(2, tails=True, causal=False)
    gradients = []
    for dtype in (torch.float16, torch.float64):
        energy = torch.zeros(1, 4000, 5, dtype=torch.float64, requires_grad=True)
        value = torch.full((1, 1, 4000, 1), 10.0, dtype=dtype)
        weights = static_mixing.BandWeights.softmax(
            which, (1, 1), energy.to(torch.promote_types(dtype, torch.float32)), 4000
        )
        gradients += torch.autograd.grad(weights.mix(value).sum(), energy)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-2)


@pytest.mark.parametrize("ratio", [(1, 1), (6, 5), (4, 1), (1, 4)], ids=str)
def test_blocks_grow_with_the_length(ratio):
    """Also where γN runs past the source: places for queries, and tokens in windows."""
    for queries in (1000, 2000, 4000):
        _, rows, _ = band._in_blocks(queries, 32, ratio, torch.device("cpu"))
        assert rows.numel() <= 1.2 * queries + 64
        assert len(rows) * 32 <= queries * ratio[0] / ratio[1] + 64


@pytest.mark.parametrize("tails", [True, False])
def test_blocks_end_with_the_memory(monkeypatch, tails):
    """Queries far behind the last token, as a large γ makes them, are in no block."""
    in_blocks, places = band._in_blocks, []
    monkeypatch.setattr(band, "_in_blocks", lambda *given: places.append(in_blocks(*given)) or places[-1])
    which, weights, value = band.Band(16, tails, causal=False), torch.randn(1, 256, 33), torch.randn(1, 1, 256, 2)
    mixed = band.mix_band(weights, value, which, (100, 1))
    assert places[0][1].numel() <= 32
    expected = weights[:, 3:, -1:] * value.sum(dim=2) if tails else 0 * mixed[0, :, 3:]
    torch.testing.assert_close(mixed[0, :, 3:], expected)


def test_steps_have_gradients():
    mixer = build_mixer("lightconv", "decoder", clip_distance=2, lightconv_global_context=True)
    x, state = torch.randn(1, 6, 8, dtype=torch.float64, requires_grad=True), mixer.init_state(1)
    outputs = [mixer.step(token, state) for token in x.split(1, dim=1)]
    full = mixer(x, x)
    (steps,) = torch.autograd.grad(torch.cat(outputs, dim=1).pow(2).sum(), x)
    torch.testing.assert_close(steps, *torch.autograd.grad(full.pow(2).sum(), x), **CLOSE)


def test_weight_that_lies_on_padding_is_found_out():
    """A sentence whose real tokens have next to no weight is computed by itself, in which case nothing is lost."""
    mixer = build_mixer("lightconv", clip_distance=2, lightconv_global_context=True)
    with torch.no_grad():
        mixer.energies[0].weight[:, 0] = 1000.0  # of tokens on the far right
    x, mask = torch.randn(2, 9, 8, dtype=torch.float64), torch.zeros(2, 9, dtype=torch.bool)
    mask[1, 3:] = True
    together = mixer(x, x, padding_mask=mask)
    alone = mixer(x[1:, :3])
    torch.testing.assert_close(together[1, :3], alone[0], **CLOSE)


@pytest.mark.parametrize("tails", [True, False])
@pytest.mark.parametrize("ratio", [(1, 1), (4, 3), (3, 7), (4, 1)], ids=str)
def test_gradients_of_the_band(monkeypatch, tails, ratio):
    monkeypatch.setattr(band, "SMALLEST_BLOCK", 2)
    weights = torch.randn(2, 9, 3, dtype=torch.float64, requires_grad=True)
    value = torch.randn(2, 2, 11, 2, dtype=torch.float64, requires_grad=True)
    which = band.Band(1, tails=tails, causal=False)
    assert torch.autograd.gradcheck(lambda w, v: band.mix_band(w, v, which, ratio), (weights, value))
    with pytest.raises(UsageError, match="create_graph=True: posnet's layers have no second derivatives"):
        torch.autograd.grad(band.mix_band(weights, value, which, ratio).sum(), weights, create_graph=True)


def test_compiled_band_is_the_band(monkeypatch):
    monkeypatch.setattr(band, "FEWEST_BLOCKS", 0)
    mixer = build_mixer("lightconv")
    x = torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)

    def gradients(run):
        return torch.autograd.grad(run(x, x).pow(2).sum(), [x, *mixer.parameters()])

    torch._dynamo.reset()
    torch.testing.assert_close(gradients(torch.compile(mixer, backend="aot_eager")), gradients(mixer))


def test_counts_are_those_of_the_pairs():
    for tails in (True, False):
        for causal in (True, False):
            which, number = band.Band(2, tails, causal), torch.zeros(7, 5, dtype=torch.long)
            for n in range(7):
                for m in range(4):
                    offset = n * 3 // 2 - m
                    if (tails or abs(offset) <= 2) and not (causal and offset < 0):
                        number[n, max(-2, min(2, offset)) + 2] += 1
            assert torch.equal(which.counts(7, 4, (3, 2)), number)
            assert torch.equal(which.counts(7, torch.full((1, 1, 1), 4), (3, 2))[0], number)


@pytest.mark.parametrize("keys", [3, torch.full((2, 1, 1), 3)], ids=["one length", "each its own"])
def test_weights_are_finite_where_a_query_meets_no_token(keys):
    """Queries from 5 on, whose window ends behind the last token."""
    which, energy = band.Band(2, tails=False, causal=False), torch.randn(4, 9, 5)
    weights = static_mixing.BandWeights.softmax(which, (1, 1), energy, keys).weights
    assert weights.isfinite().all()
    totals = (weights * which.counts(9, 3, (1, 1))).sum(-1)
    torch.testing.assert_close(totals, (torch.arange(9) < 5).float().expand_as(totals))


def test_a_state_stays_what_its_first_step_made_it():
    """Steps without gradients go on from those with; others are refused, and so are weights in some steps only."""
    mixer = build_mixer("rposnet", "decoder")
    tokens = torch.randn(2, 9, mixer.embed_dim, dtype=torch.float64)
    positions = vectors(64, mixer.embed_dim)["positions"].detach()
    expected = mixer(tokens, positions=positions)
    state, found = mixer.init_state(2), []
    for position, token in enumerate(tokens.split(1, dim=1)):
        with torch.set_grad_enabled(position < 4):
            found.append(mixer.step(token, state, positions))
    torch.testing.assert_close(torch.cat(found, dim=1), expected, **CLOSE)
    said = r"need_weights or dropout at position 9: .* in all steps of a state, or in none"
    with pytest.raises(UsageError, match=said):
        mixer.step(tokens[:, :1], state, positions, need_weights=True)
    for name in ("rposnet", "attention"):
        mixer, found = build_mixer(name, "decoder"), []
        state, expected = mixer.init_state(2), mixer(tokens[[1, 0]], positions=positions)
        for position, token in enumerate(tokens.split(1, dim=1)):
            with torch.inference_mode() if position < 5 else torch.no_grad():
                found.append(mixer.step(token if position < 4 else token[[1, 0]], state, positions))
                if position in (3, 7):
                    state.reorder(torch.tensor([1, 0] if position == 3 else [0, 1]))
        torch.testing.assert_close(torch.cat(found[4:], dim=1), expected[:, 4:], **CLOSE)
        state = mixer.init_state(2)
        with torch.inference_mode():
            mixer.step(tokens[:, :1], state, positions)
        state.reorder(torch.tensor([1]))  # fewer
        with torch.no_grad():
            found = mixer.step(tokens[1:, 1:2], state, positions)
        torch.testing.assert_close(found, expected[:1, 1:2], **CLOSE)
    state = mixer.init_state(2)
    with torch.no_grad():
        mixer.step(tokens[:, :1], state, positions)
    with pytest.raises(UsageError, match="a step with gradients: its state began without them"):
        mixer.step(tokens[:, 1:2], state, positions)


@pytest.mark.parametrize("place", ["encoder", "cross"])
def test_weights_of_each_sentence_where_numbers_may_not_be_looked_at(monkeypatch, place):
    """As on a GPU. Of a sentence of padding only, results are finite."""
    mixer = build_mixer("rposnet", place, clip_distance=2)
    x, queries, given = (
        torch.randn(3, 12, 8, dtype=torch.float64),
        torch.randn(3, 12, 8, dtype=torch.float64),
        vectors(16),
    )
    if place == "encoder":
        given, queries = {"positions": given["positions"]}, x
    memory = {} if place == "encoder" else {"memory": x}
    padding_mask = torch.arange(12) >= torch.tensor([[12], [5], [0]])
    expected = mixer(queries, **memory, padding_mask=padding_mask, **given)
    monkeypatch.setattr(position_based, "may_look_at", lambda _: False)
    monkeypatch.setattr(band, "FEWEST_BLOCKS", 0)
    found = mixer(queries, **memory, padding_mask=padding_mask, **given)
    real = ~padding_mask if place == "encoder" else torch.tensor([True, True, False])
    torch.testing.assert_close(found[real], expected[real], **CLOSE)
    assert found.isfinite().all()
