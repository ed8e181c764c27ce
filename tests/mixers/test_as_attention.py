"""Mixers with the call of nn.MultiheadAttention, and pairs of tokens that are not mixed, for every mixer."""

import copy

import pytest
import torch
from torch import nn

from posnet_fairseq import as_attention, build_mixer, mixer_names
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from support.building import ARGUMENTS, IN_PLACES

D, H, B, N, M = 16, 4, 3, 7, 5
PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3, [False] * 6 + [True]])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(N)
PAIRS = [name for name in mixer_names() if get_mixer(name).hides_pairs]


def mixer(name, **options):
    return build_mixer(name, embed_dim=D, num_heads=H, max_positions=16, **options).eval()


def built(name, place):
    return mixer(name, **ARGUMENTS[place])


def tokens(place):
    query = torch.randn(B, N, D)
    return query, torch.randn(B, M, D) if place == "cross" else query


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "place"), IN_PLACES)
def test_the_call_of_attention_is_that_of_the_mixer(name, place):
    one = built(name, place)
    query, memory = tokens(place)
    expected, weights = one(query, memory if place == "cross" else None, need_weights=True)
    attention = as_attention(one)
    mixed, by_head = attention(query, memory, memory, average_attn_weights=False)
    close(mixed, expected)
    if weights is None:
        assert by_head is None
    else:
        close(by_head, weights.expand(B, -1, -1, -1))
        close(attention(query, memory, memory)[1], weights.expand(B, -1, -1, -1).mean(dim=1))
    assert attention(query, memory, memory, need_weights=False)[1] is None
    first = query.transpose(0, 1)
    other = memory.transpose(0, 1) if place == "cross" else first
    close(as_attention(one, batch_first=False)(first, other, other)[0].transpose(0, 1), expected)
    alone = query[0]
    other = memory[0] if place == "cross" else alone
    close(attention(alone, other, other)[0], expected[0])


@pytest.mark.parametrize("name", mixer_names())
def test_padding_before_tokens_moves_them_only(name):
    attention = as_attention(mixer(name))
    x = torch.randn(B, N, D)
    expected, weights = attention(x, x, x, key_padding_mask=PADDING)
    shifts = [0, 3, 1]
    left = torch.stack([row.roll(shift, 0) for row, shift in zip(x, shifts, strict=True)])
    mask = torch.stack([row.roll(shift) for row, shift in zip(PADDING, shifts, strict=True)])
    as_numbers = torch.zeros(mask.shape).masked_fill(mask, -torch.inf)
    found, moved = attention(left, left, left, key_padding_mask=as_numbers)
    for row, shift in enumerate(shifts):
        close(found[row].roll(-shift, 0)[~PADDING[row]], expected[row][~PADDING[row]])
        if weights is not None:
            close(moved[row].roll((-shift, -shift), (0, 1))[~PADDING[row]], weights[row][~PADDING[row]])


@pytest.mark.parametrize(("name", "place"), IN_PLACES)
def test_no_sentences_and_no_tokens(name, place):
    attention = as_attention(built(name, place))
    for sentences, length in ((0, N), (B, 0)):
        x = torch.randn(sentences, length, D)
        memory = torch.randn(sentences, M, D) if place == "cross" else x
        mixed, weights = attention(x, memory, memory, key_padding_mask=torch.zeros(memory.shape[:2]))
        assert mixed.shape == x.shape
        assert weights is None or weights.shape == (sentences, length, memory.size(1))


@pytest.mark.parametrize("name", PAIRS)
def test_hidden_pairs_are_not_mixed(name):
    """In every place: what is hidden changes nothing, and nothing hidden is nothing changed; in chunks, too."""
    for place in get_mixer(name).places:
        one = built(name, place).double()
        query, memory = (x.double() for x in tokens(place))
        memory = memory.requires_grad_() if place == "cross" else None
        query.requires_grad_()
        keys = M if memory is not None else N
        mask = torch.zeros(B, N, keys, dtype=torch.bool)
        close(one(query, memory, attn_mask=mask), one(query, memory))
        mask[:, 2, 1] = mask[:, 2, 0] = True
        mixed, weights = one(query, memory, attn_mask=mask, need_weights=True)
        assert not weights.expand(B, -1, -1, -1)[:, :, 2, :2].any()
        per_head = mask[:, None].expand(-1, H, -1, -1)
        for same in (mask[0], per_head):
            close(one(query, memory, attn_mask=same), mixed)
        read = memory if memory is not None else query
        (gradient,) = torch.autograd.grad(mixed[:, 2].sum(), read)
        assert gradient[:, :2].abs().max() < 1e-12  # sums over gates of tokens round
        assert gradient[:, 2].any()


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, place in IN_PLACES if name in PAIRS])
def test_a_query_that_sees_nothing_mixes_zeros(name, place):
    """Also where the mask hides what a causal mixer, or a window, would see, and no more."""
    one = built(name, place)
    query, memory = tokens(place)
    mask = torch.zeros(N, memory.size(1), dtype=torch.bool)
    mask[3, : 4 if place == "decoder" else None] = True
    given = query, memory if place == "cross" else None
    mixed, weights = one(*given, attn_mask=mask, need_weights=True)
    assert not weights[..., 3, :].any()
    close(one(*given, attn_mask=mask), mixed)


def test_a_query_whose_window_is_hidden_mixes_zeros():
    one, x = mixer("lightconv", clip_distance=2), torch.randn(B, N, D)
    window = one(x, need_weights=True)[1].ne(0)
    assert window.float().mean() == (3 + 4 + 3 * 5 + 4 + 3) / N**2
    for mixed in one(x, attn_mask=window.expand(B, H, -1, -1), need_weights=True):
        assert not (mixed - (one.out_proj.bias if mixed.dim() == 3 else 0)).any()


@pytest.mark.parametrize("name", ["attention", "shaw", "rposnet", "lightconv", "translution"])
def test_documents_of_a_packed_sequence_do_not_see_each_other(name):
    """Where weights depend on offsets alone, each is mixed as by itself."""
    one = mixer(name)
    x, numbers = torch.randn(1, N, D), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    packed = one(x, attn_mask=numbers[:, None] != numbers)
    alone = torch.cat([one(part) for part in x.split([3, 4], dim=1)], dim=1)
    if one.own_positions is None:
        close(packed, alone)
    else:
        close(packed[:, :3], alone[:, :3])


def test_hidden_pairs_in_chunks(monkeypatch):
    from posnet_fairseq.ops import chunks

    x, mask = torch.randn(B, N, D), torch.rand(B, N, N) > 0.7
    for name in ("shaw", "linearnet"):
        one = mixer(name)
        expected = one(x, attn_mask=mask)
        with monkeypatch.context() as patch:
            patch.setattr(chunks, "CPU_LIMIT", 1)
            close(one(x, attn_mask=mask), expected)


@pytest.mark.parametrize("name", ["attention", "rposnet", "irpe"])
@pytest.mark.parametrize("training", [True, False])
def test_in_layers_of_torch(name, training):
    """Encoder and decoder layers of torch compute what a block written by hand does, whatever fused paths they have."""
    encoder = nn.TransformerEncoderLayer(D, H, 32, dropout=0, batch_first=True)
    encoder.self_attn = as_attention(mixer(name))
    stack = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False).train(training)
    x = torch.randn(B, N, D)
    with torch.set_grad_enabled(training):
        expected = x
        for layer in stack.layers:
            mixed = layer.norm1(expected + layer.self_attn.mixer(expected, padding_mask=PADDING))
            expected = layer.norm2(mixed + layer.linear2(layer.linear1(mixed).relu()))
        close(stack(x, src_key_padding_mask=PADDING)[~PADDING], expected[~PADDING])

        decoder = nn.TransformerDecoderLayer(D, H, 32, dropout=0, batch_first=True).train(training)
        decoder.self_attn = as_attention(mixer(name, causal=True))
        memory = torch.randn(B, M, D)
        found = decoder(x, memory, tgt_mask=CAUSAL, tgt_is_causal=True)
        unlike = copy.deepcopy(x)
        unlike[:, 4:] = 1.0
        close(decoder(unlike, memory, tgt_mask=CAUSAL)[:, :4], found[:, :4])
        mixed = decoder.norm1(x + decoder.self_attn.mixer(x))
        mixed = decoder.norm2(mixed + decoder.multihead_attn(mixed, memory, memory)[0])
        close(found, decoder.norm3(mixed + decoder.linear2(decoder.linear1(mixed).relu())))


def test_a_causal_mask_makes_a_mixer_causal():
    one, x = mixer("shaw"), torch.randn(B, N, D)
    causal = mixer("shaw", causal=True)
    causal.load_state_dict(one.state_dict())
    close(as_attention(one)(x, x, x, attn_mask=CAUSAL, is_causal=True)[0], causal(x))


def test_what_does_not_fit_is_refused():
    x, y = torch.randn(B, N, D), torch.randn(B, M, D)
    attention = as_attention(mixer("rposnet"))
    for key, value in ((y, y), (x, x.clone())):
        with pytest.raises(UsageError, match="query, key and value: a mixer for self-attention takes one tensor"):
            attention(x, key, value)
    with pytest.raises(UsageError, match=r"is_causal True: this mixer sees the future\. Build it with causal=True"):
        attention(x, x, x, is_causal=True)
    with pytest.raises(UsageError, match="attn_mask of int64: give bool, or 0 and -inf"):
        attention(x, x, x, attn_mask=torch.ones(N, N, dtype=torch.long))
    with pytest.raises(UsageError, match="mixer of the type str: give what build_mixer returns"):
        as_attention("rposnet")
    with pytest.raises(UsageError, match=r"length_ratio \(6, 5\): give source tokens and target tokens in cross-"):
        as_attention(mixer("rposnet"), length_ratio=(6, 5))
    with pytest.raises(UsageError, match=r"tokens of the shape \(16,\): give \(N, B, D\), or \(N, D\) of one sentence"):
        as_attention(mixer("rposnet"), batch_first=False)(*[torch.randn(16)] * 3)
    with pytest.raises(UsageError, match="attn_mask: a mask of numbers may contain 0 and -inf only"):
        attention(x, x, x, attn_mask=-1e9 * torch.ones(N, N).triu(1))
    sentence = r"attn_mask \(5, 5\): give True at pairs that are not mixed, \(7, 7\) or \(12, 7, 7\)\."
    with pytest.raises(UsageError, match=sentence):
        attention(x, x, x, attn_mask=torch.ones(M, M, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"attn_mask \(3, 7, 7\): .* \(7, 7\) or \(12, 7, 7\)"):
        attention(x, x, x, attn_mask=torch.zeros(B, N, N, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"padding_mask \(3, 9\) of bool: .* \(3, 7\)"):
        attention(x, x, x, key_padding_mask=torch.arange(9).expand(B, -1) < 2)
    with pytest.raises(UsageError, match=r"attn_mask: fouriernet mixes all tokens of a sentence\. Leave it out"):
        mixer("fouriernet")(x, attn_mask=torch.ones(N, N, dtype=torch.bool))
    with pytest.raises(UsageError, match=r"attn_mask: ssru hides the future, and nothing else\. .* is_causal=True too"):
        mixer("ssru", causal=True)(x, attn_mask=torch.ones(N, N, dtype=torch.bool))
