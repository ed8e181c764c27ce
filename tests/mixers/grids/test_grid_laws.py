"""What must hold for every mixer that has a form on grids."""

import pytest
import torch
from torch.autograd import grad

import posnet_fairseq as posnet
from posnet_fairseq.mixers.bases.content_based import ContentBasedMixer
from posnet_fairseq.mixers.shaw import Shaw
from posnet_fairseq.registry import mixer_names
from posnet_fairseq.testing import LAWS
from support import grids

NAMES = mixer_names(on_grids=True)
every_mixer = pytest.mark.parametrize("name", NAMES)
# Laws of sentences of other lengths than the longest, and of decoding.
OF_SENTENCES = {
    "padding_changes_nothing",
    "every_length_works",
    "nothing_gives_nothing",
    "tokens_without_positions_are_refused",
    "padding_before_tokens_is_refused",
    "arguments_that_do_not_fit_are_refused",
    "a_prompt_is_refused",
    "an_order_of_other_hypotheses_is_refused",
    "steps_equal_the_full_pass",
    "steps_equal_the_full_pass_to_the_last_position",
    "hypotheses_that_move_keep_their_past",
    "the_future_changes_nothing",
    "hypotheses_drop_weights_of_their_own",
}
OF_GRIDS = [law for law in LAWS if law.__name__ not in OF_SENTENCES]


def random_batch(mixer):
    """Tokens of three images, and masks without padding, with padding behind, and with padding anywhere."""
    padding = grids.masks(mixer)
    return torch.randn(*padding.shape, mixer.embed_dim, dtype=torch.float64, requires_grad=True), padding


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@every_mixer
def test_laws(monkeypatch, name, large):
    """Of the mixers of sentences, whose batches have 7 tokens."""
    if large:
        grids.as_if_large(monkeypatch)
    for law in OF_GRIDS:
        torch.manual_seed(1)
        law(grids.build_mixer(name, (2, 3), 1))


def extra_tokens_have_no_order(mixer):
    x, padding = random_batch(mixer)
    order = torch.arange(mixer.max_positions)
    order[: grids.EXTRA] = order[: grids.EXTRA].flip(0)
    positions = None
    if mixer.reads_positions:  # which are of a token's number
        positions = mixer.own_positions.for_mixers(mixer.max_positions)[order]
    expected = mixer(x, padding_mask=padding)[:, order]
    torch.testing.assert_close(mixer(x[:, order], padding_mask=padding[:, order], positions=positions), expected)


def padding_changes_nothing(mixer):
    """Neither what stands there nor the other images of the batch; hiding it from every query is the same."""
    x, padding = random_batch(mixer)
    expected = mixer(x, padding_mask=padding)[~padding]
    other = torch.where(padding[..., None], torch.randn_like(x), x)
    torch.testing.assert_close(mixer(other, padding_mask=padding)[~padding], expected)
    alone = [mixer(image[None], padding_mask=mask[None])[0] for image, mask in zip(x, padding, strict=True)]
    torch.testing.assert_close(torch.stack(alone)[~padding], expected)
    hidden = padding[:, None].expand(-1, mixer.max_positions, -1)
    torch.testing.assert_close(mixer(x, attn_mask=hidden)[~padding], expected)
    torch.testing.assert_close(posnet.as_attention(mixer)(x, x, x, padding)[0][~padding], expected)


def every_token_reaches_every_query(mixer):
    x, _ = random_batch(mixer)
    before = mixer(x)
    for index in range(mixer.max_positions):
        changed = x.detach().clone()
        changed[:, index] += 1
        assert (mixer(changed) != before).any(dim=-1).all(), f"token {index} does not reach all queries"


def cells_are_not_alike(mixer):
    """Two cells that change their places are not mixed as before, unless it is attention."""
    x, _ = random_batch(mixer)
    order = torch.arange(mixer.max_positions)
    order[-2:] = order[-2:].flip(0)
    is_same = torch.allclose(mixer(x[:, order]), mixer(x)[:, order])
    assert is_same == (mixer.name == "attention")


def every_parameter_learns(mixer):
    x, padding = random_batch(mixer)
    names, parameters = zip(*mixer.named_parameters(), strict=True)
    gradients = grad(mixer(x, padding_mask=padding).pow(2).sum(), parameters, allow_unused=True, materialize_grads=True)
    idle = [name for name, gradient in zip(names, gradients, strict=True) if not gradient.any()]
    # The softmax takes out again what is the same for all keys.
    assert [name for name in idle if name != "key_proj.bias"] == []


def no_images_give_none(mixer):
    x, padding = random_batch(mixer)
    result = mixer(x[:0], padding_mask=padding[:0])
    assert result.shape == (0, *x.shape[1:])
    gradients = grad(result.sum(), [*mixer.parameters()], allow_unused=True, materialize_grads=True)
    assert not any(gradient.any() for gradient in gradients)


@every_mixer
def test_laws_of_grids(name):
    extra_tokens_have_no_order(grids.build_mixer(name))
    padding_changes_nothing(grids.build_mixer(name))
    every_token_reaches_every_query(grids.build_mixer(name))
    cells_are_not_alike(grids.build_mixer(name))
    every_parameter_learns(grids.build_mixer(name))
    no_images_give_none(grids.build_mixer(name))


@pytest.mark.parametrize(("grid", "extra_tokens"), [(grids.GRID, grids.EXTRA), ((3, 2), 5), ((1, 7), 0)], ids=str)
@every_mixer
def test_an_image_at_a_time_changes_nothing(monkeypatch, name, grid, extra_tokens):
    mixer = grids.build_mixer(name, grid, extra_tokens)
    x, padding = random_batch(mixer)
    results = []
    for _ in range(2):
        output = mixer(x, padding_mask=padding)
        results.append((output, grad(output.pow(2).sum(), [x, *mixer.parameters()], allow_unused=True)))
        grids.as_if_large(monkeypatch)
    torch.testing.assert_close(*results)


@pytest.mark.thorough  # seconds each; quick: one mixer compiled by itself, in test_banded
@every_mixer
def test_compiling_changes_nothing(name):
    mixer = grids.build_mixer(name, (2, 2))  # tracing Translution takes a second for each offset
    x, padding = random_batch(mixer)
    torch._dynamo.reset()
    compiled = torch.compile(mixer, backend="eager", fullgraph=True, dynamic=True)
    for images in (3, 2):
        results = []
        for run in (compiled, mixer):
            output = run(x[:images], padding_mask=padding[:images])
            results.append((output, grad(output.pow(2).sum(), [x, *mixer.parameters()], allow_unused=True)))
        torch.testing.assert_close(*results)


class Breakage:
    """What breaks the laws, of Shaw on a grid: each takes monkeypatch."""

    @staticmethod
    def telling_extra_tokens_apart(monkeypatch):
        monkeypatch.setattr(Shaw, "prepare", _changed(Shaw.prepare, lambda rows: rows - torch.eye(len(rows)).long()[0]))

    @staticmethod
    def telling_no_offsets_apart(monkeypatch):
        monkeypatch.setattr(Shaw, "prepare", _changed(Shaw.prepare, torch.zeros_like))

    @staticmethod
    def reading_keys_for_queries(monkeypatch):
        monkeypatch.setattr(Shaw, "prepare", _changed(Shaw.prepare, lambda rows: rows.mT.contiguous()))

    @staticmethod
    def seeing_padding(monkeypatch):
        weights = ContentBasedMixer.weights
        monkeypatch.setattr(
            ContentBasedMixer, "weights", lambda self, q, k, index, _, hidden: weights(self, q, k, index, None, hidden)
        )


def _changed(prepare, change):
    return lambda self, offsets: change(prepare(self, offsets))


@pytest.mark.parametrize(
    ("breakage", "law"),
    [
        ("telling_extra_tokens_apart", extra_tokens_have_no_order),
        ("telling_no_offsets_apart", cells_are_not_alike),
        ("reading_keys_for_queries", grids.assert_equal_to_formula),
        ("seeing_padding", padding_changes_nothing),
    ],
)
def test_law_fails(monkeypatch, breakage, law):
    """A law that nothing breaks proves nothing."""
    law(grids.build_mixer("shaw"))
    getattr(Breakage, breakage)(monkeypatch)
    with pytest.raises(AssertionError):
        law(grids.build_mixer("shaw"))
