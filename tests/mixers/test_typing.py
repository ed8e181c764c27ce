"""Types that callers of mixers get. mypy checks this file with the sources; run, it checks that they are true."""

from typing import assert_type

import torch
from torch import Tensor

import posnet_fairseq as posnet

Weighted = tuple[Tensor, Tensor | None]


def test_what_a_mixer_returns() -> None:
    mixer, x = posnet.build_mixer("rposnet", 8, 2, 16, causal=True), torch.randn(2, 5, 8)
    assert isinstance(assert_type(mixer(x), Tensor), Tensor)
    assert isinstance(assert_type(mixer(x, padding_mask=None, need_weights=True), Weighted), tuple)
    for need_weights in (True, False):
        found = assert_type(mixer(x, need_weights=need_weights), Tensor | Weighted)
        assert isinstance(found, tuple) == need_weights
    assert isinstance(assert_type(posnet.as_attention(mixer)(x, x, x), Weighted), tuple)
    new, state = x[:, :1], mixer.init_state(2)
    assert isinstance(assert_type(mixer.step(new, state), Tensor), Tensor)
    assert isinstance(assert_type(mixer.step(new, mixer.init_state(2), need_weights=True), Weighted), tuple)
