"""Faults put into the code on purpose: the laws of a GPU find them."""

import pytest
import torch

from posnet_fairseq.mixers.bases import context, position_based
from posnet_fairseq.mixers.rposnet import RelativeEnergy
from posnet_fairseq.ops.linear import Linear
from posnet_fairseq.transformer import decoder
from support import gpu_laws
from support.building import Case

pytestmark = pytest.mark.gpu


def _with_a_table_on_the_cpu(monkeypatch):
    scaled = context.scaled
    monkeypatch.setattr(context, "scaled", lambda n, ratio: scaled(n.cpu(), ratio))


def _with_a_mask_as_index(monkeypatch):
    mix_each = position_based.PositionBasedMixer.mix_each

    def indexing(self, query, value, context, *arguments):
        if context.padding_mask is not None:
            assert len(value.transpose(1, 2)[~context.padding_mask])
        return mix_each(self, query, value, context, *arguments)

    monkeypatch.setattr(position_based.PositionBasedMixer, "mix_each", indexing)


def _with_a_wait_in_the_backward_pass(monkeypatch):
    forward = RelativeEnergy.forward

    def hooked(self, *arguments):
        energy = forward(self, *arguments)
        energy.register_hook(lambda gradient: gradient * bool(gradient.isfinite().all()))
        return energy

    monkeypatch.setattr(RelativeEnergy, "forward", hooked)


def _with_numbers_copied_in_every_step(monkeypatch):
    features = decoder.Decoder.features

    def copying(self, tokens, *arguments):
        return features(self, tokens + torch.tensor([0], device=tokens.device), *arguments)

    monkeypatch.setattr(decoder.Decoder, "features", copying)


def _in_single_precision(monkeypatch):
    forward = Linear.forward

    def uncast(self, x):
        with torch.autocast(x.device.type, enabled=False):
            return forward(self, x.float())

    monkeypatch.setattr(Linear, "forward", uncast)


def autocast(gpu, case):
    gpu_laws.autocast_computes_in_half_precision(gpu, case, torch.bfloat16)


@pytest.mark.parametrize(
    ("breakage", "law", "found"),
    [
        (_with_a_table_on_the_cpu, gpu_laws.a_training_step_waits_once, "cpu"),
        (_with_a_mask_as_index, gpu_laws.a_training_step_waits_once, r"test_faults\.py:\d+"),
        (_with_a_wait_in_the_backward_pass, gpu_laws.a_training_step_waits_once, r"test_faults\.py:\d+"),
        (_with_numbers_copied_in_every_step, gpu_laws.a_step_of_the_search_waits_once, r"test_faults\.py:\d+"),
        (_in_single_precision, autocast, "float32"),
    ],
)
def test_fault_is_found(monkeypatch, gpu, breakage, law, found):
    breakage(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError), match=found):
        law(gpu, Case("rposnet", "encoder", "gelu"))
