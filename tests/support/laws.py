"""Laws that hold for every token mixer. Each takes a model and raises AssertionError if the model breaks it."""

import functools
import io

import torch

from posnet_fairseq.inference.stored_energies import precompute
from support.building import MAX_POSITIONS, pad, replaced, sentences

TOLERANCE = {"rtol": 0, "atol": 1e-5}


def decode(model, source, target):
    return model(source, None, target)[0]


def padding_on_either_side_changes_nothing(model):
    """Nor do the other sentences of a batch: each is as by itself."""
    sources, targets = sentences(5, 1, 9, 3), sentences(4, 6, 1, 8)
    alone = [decode(model, s[None], t[None])[0] for s, t in zip(sources, targets, strict=True)]
    for left_source in (True, False):
        for left_target in (True, False):
            together = decode(model, pad(sources, left_source, 12), pad(targets, left_target, 11))
            for scores, target, expected in zip(together, targets, alone, strict=True):
                real = scores[-len(target) :] if left_target else scores[: len(target)]
                torch.testing.assert_close(real, expected, **TOLERANCE)


def every_token_reaches_every_query(model):
    """A mixer that mixes nothing would pass most other laws.

    In the encoder every source token must change the output at all positions, in the decoder every target token
    all later predictions, through cross-attention every source token all predictions.
    """
    (source,), (target,) = sentences(5), sentences(6)
    states = model.encoder(source[None])["encoder_out"][0].squeeze(1)
    scores = decode(model, source[None], target[None]).squeeze(0)
    for index in range(len(source)):
        changed = replaced(source, index)
        new_states = model.encoder(changed[None])["encoder_out"][0].squeeze(1)
        assert (new_states != states).any(dim=-1).all(), f"source token {index} does not reach all positions"
        new_scores = decode(model, changed[None], target[None]).squeeze(0)
        assert (new_scores != scores).any(dim=-1).all(), f"source token {index} does not reach all predictions"
    for index in range(len(target)):
        new_scores = decode(model, source[None], replaced(target, index)[None]).squeeze(0)
        assert (new_scores != scores).any(dim=-1)[index:].all(), f"target token {index} does not reach what follows"


def steps_equal_the_full_pass(model, beam=3):
    """Beam search moves hypotheses within a sentence and drops sentences that end. Steps have seen no future."""
    source, length = pad(sentences(6, 4), left=True), MAX_POSITIONS
    encoder_out = model.encoder(source)
    rows = torch.arange(len(source)).repeat_interleave(beam)
    encoder_out = model.encoder.reorder_encoder_out(encoder_out, rows)
    prefix = torch.full((len(rows), 1), 2)
    past, state, generator = [], {}, torch.Generator().manual_seed(3)
    for step in range(length):
        scores, _ = model.decoder(prefix, encoder_out=encoder_out, incremental_state=state)
        past.append(scores[:, -1])
        if step % 6 == 5:  # also before a sentence ends, and in the last step
            full, _ = model.decoder(prefix, encoder_out=encoder_out)
            message = functools.partial("up to step {}: {}".format, step)
            torch.testing.assert_close(torch.stack(past, dim=1), full, **TOLERANCE, msg=message)
        if step + 1 == length:
            break
        # hypotheses of a sentence change places, one may be taken twice
        order = (torch.randint(beam, (len(prefix) // beam, beam), generator=generator)) + torch.arange(
            0, len(prefix), beam
        ).unsqueeze(1)
        if step == 5:
            order = order[1:]  # the first sentence has ended
        order = order.flatten()
        past = [scores[order] for scores in past]
        model.decoder.reorder_incremental_state_scripting(state, order)
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
        new = torch.randint(4, 40, (len(order), 1), generator=generator)
        prefix = torch.cat([prefix[order], new], dim=1)


def saving_and_loading_change_nothing(model, twin):
    """`twin`: a model of the same options with other weights."""
    source, target = pad(sentences(5, 7)), pad(sentences(6, 4))
    expected = decode(model, source, target)
    assert not torch.allclose(expected, decode(twin, source, target))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    twin.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(decode(twin, source, target), expected)


def storing_energies_changes_nothing(model, twin):
    """In a full pass, step by step, and in a newly built model that loads the stored tables.

    `twin`: a model of the same options with other weights.
    """
    source, target = pad(sentences(5, 7), left=True), pad(sentences(6, 4))
    expected = decode(model, source, target)
    precompute(model)
    torch.testing.assert_close(decode(model, source, target), expected, **TOLERANCE)
    steps_equal_the_full_pass(model)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(decode(twin, source, target), decode(model, source, target))


def half_precision_stays_finite(model, dtype):
    """Also with a sentence of padding only, whose queries have no real key at all."""
    scores = decode(model.to(dtype), *_with_a_sentence_of_padding_only())
    assert scores.dtype == dtype
    _assert_finite(model, scores)


def autocast_stays_finite(model, dtype):
    """As above, with only matrix products in half precision, as with ``--amp``."""
    with torch.autocast("cpu", dtype=dtype):
        scores = decode(model, *_with_a_sentence_of_padding_only())
    _assert_finite(model, scores)


def _with_a_sentence_of_padding_only():
    source = pad(sentences(5, 2), left=True)
    return torch.cat([source, torch.full_like(source[:1], 1)]), pad(sentences(4, 6, 3), left=True)


def _assert_finite(model, scores):
    assert torch.isfinite(scores).all()
    for parameter in model.parameters():
        parameter.grad = None
    scores.float().logsumexp(-1).mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def every_length_works(model):
    for length in (1, MAX_POSITIONS):
        scores = decode(model, pad(sentences(length)), pad(sentences(length)))
        assert scores.shape[1] == length
        assert torch.isfinite(scores).all()


def compiling_changes_nothing(model):
    """torch.compile traces forward and backward; "aot_eager" runs the traces as they are."""
    source, target = pad(sentences(5, 8), left=True), pad(sentences(6, 9))
    torch._dynamo.reset()
    losses, gradients = [], []
    for run in (model, torch.compile(model, backend="aot_eager")):
        model.zero_grad()
        loss = run(source, None, target)[0].logsumexp(-1).mean()
        loss.backward()
        losses.append(loss.detach())
        gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
    torch.testing.assert_close(*losses, **TOLERANCE)
    torch.testing.assert_close(*gradients, **TOLERANCE)


def every_parameter_learns(model):
    model.train()
    decode(model, pad(sentences(5, 8)), pad(sentences(6, 9))).logsumexp(-1).pow(2).mean().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == [], f"no gradient reaches {idle}"
