"""The constant state of mixers that clip offsets, against the full pass, and padding of position-based mixers."""

import pytest
import torch

from posnet_fairseq.mixers.bases import position_based
from posnet_fairseq.mixers.bases.banded import append
from posnet_fairseq.ops.band import Band
from posnet_fairseq.shared.errors import UsageError
from support.building import BANDED, build_mixer, vectors

CLOSE = {"rtol": 0, "atol": 1e-9}


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
    value = torch.full((1, 1, 1, 1), 100.0, dtype=torch.float16)
    slots = torch.zeros(1, 1, 3, 1)
    for step in range(4000):
        slots = append(slots, value, torch.tensor([step]), Band(2, tails=True, causal=True))
    assert slots.flatten().tolist() == [100, 100, 100 * 3998]


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


def test_compiled_mixer_is_the_mixer():
    mixer = build_mixer("lightconv")
    x = torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)

    def gradients(run):
        return torch.autograd.grad(run(x, x).pow(2).sum(), [x, *mixer.parameters()])

    torch._dynamo.reset()
    torch.testing.assert_close(gradients(torch.compile(mixer, backend="aot_eager")), gradients(mixer))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("tails", [True, False])
def test_counts_are_those_of_the_pairs(tails, causal):
    band, number = Band(2, tails, causal), torch.zeros(7, 5, dtype=torch.long)
    for n in range(7):
        for m in range(7):
            if (tails or abs(n - m) <= 2) and not (causal and n < m):
                number[n, max(-2, min(2, n - m)) + 2] += 1
    assert torch.equal(band.counts(7), number)
    totals = (band.softmax(torch.randn(4, 7, 5)) * number).sum(-1)
    torch.testing.assert_close(totals, torch.ones(4, 7))


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
    found = mixer(queries, **memory, padding_mask=padding_mask, **given)
    real = ~padding_mask if place == "encoder" else torch.tensor([True, True, False])
    torch.testing.assert_close(found[real], expected[real], **CLOSE)
    assert found.isfinite().all()
