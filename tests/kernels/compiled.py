"""Run by test_kernels.py: every program is compiled to machine code for GPUs that this machine does not have."""

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from posnet_fairseq.ops import band
from posnet_fairseq.ops.kernels import attention_kernels, band_kernels

ARCHITECTURES = (80, 90)
SHARED_MEMORY = 99 * 1024  # bytes that a program may have on the smallest GPUs since: compute capability 8.6


class Gpu:
    """What Triton asks the driver when it compiles."""

    def __init__(self, architecture):
        self.architecture = architecture

    def get_current_target(self):
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self):
        return self.architecture  # Triton keeps what it has compiled by device

    def get_current_stream(self, device):
        return 0


@pytest.fixture(params=ARCHITECTURES)
def launched(request, monkeypatch):
    """{program: what it is compiled to}, of the programs that were launched since."""
    compiled = {}

    def compile_only(program, grid, *arguments, **constants):
        kernel = program.warmup(*arguments, grid=grid, **constants)
        assert kernel.metadata.target.arch == request.param
        assert kernel.metadata.shared <= SHARED_MEMORY
        assert kernel.asm["cubin"]
        compiled[program.fn.__name__] = kernel

    for module in (band_kernels, attention_kernels):
        monkeypatch.setattr(module, "launch", compile_only)
    driver.set_active(Gpu(request.param))
    return compiled


@pytest.mark.parametrize(
    ("dtype", "width", "clip_distance", "tails"),
    [
        (torch.float32, 64, 16, True),
        (torch.float16, 64, 16, True),
        (torch.bfloat16, 64, 16, True),
        (torch.bfloat16, 20, 3, False),
    ],
    ids=str,
)
def test_band(launched, dtype, width, clip_distance, tails):
    value = torch.randn(3, 200, 8, width, dtype=dtype).transpose(1, 2).requires_grad_()
    weights = torch.rand(8, 200, 2 * clip_distance + 1, requires_grad=True)
    mixed = band_kernels.mix_band(weights, value, band.Band(clip_distance, tails, causal=False))
    torch.autograd.grad(mixed.sum(), (weights, value))
    assert launched.keys() == {"mix", "mix_transposed", "weight_gradient"} | ({"sum_blocks"} if tails else set())


# Triton compiles arguments equal to 1 as constants: numbers of heads, queries and tokens among them.
ONES = [
    pytest.param(3, 1, 200, 1, (3, 2), id="one head, one token"),
    pytest.param(1, 24, 1, 200, (3, 2), id="one sentence of all heads, one query"),
]


@pytest.mark.parametrize(("batch", "heads", "queries", "keys", "length_ratio"), ONES)
def test_band_of_ones(launched, batch, heads, queries, keys, length_ratio):
    value = torch.randn(batch, keys, heads, 20).transpose(1, 2).requires_grad_()
    weights = torch.rand(heads, queries, 7, requires_grad=True)
    mixed = band_kernels.mix_band(weights, value, band.Band(3, tails=True, causal=False), length_ratio)
    torch.autograd.grad(mixed.sum(), (weights, value))
    assert launched.keys() == {"mix", "mix_transposed", "weight_gradient", "sum_blocks"}


@pytest.mark.parametrize(("batch", "heads", "queries", "keys", "length_ratio"), ONES)
def test_attention_of_ones(launched, batch, heads, queries, keys, length_ratio):
    q, k, v = (torch.randn(batch, rows, heads, 20).transpose(1, 2) for rows in (queries, keys, keys))
    inputs = [x.requires_grad_() for x in (q, k, v, torch.randn(batch, heads, queries, 7))]
    index = torch.zeros((queries - 1) * length_ratio[0] // length_ratio[1] + keys, dtype=torch.long)
    mask = torch.zeros(batch, keys, dtype=torch.bool)
    mixed = attention_kernels.attend(*inputs, index, mask, 0.1, length_ratio=length_ratio)
    torch.autograd.grad(mixed.sum(), inputs)
    assert launched.keys() == {"attend", "query_gradient", "key_gradient"}


def test_tf32(launched):
    """Products of float32 on tensor cores, where torch may."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        band_kernels.mix_band(torch.rand(2, 64, 3), torch.randn(1, 2, 64, 64), band.Band(1, False, causal=False))
    finally:
        torch.set_float32_matmul_precision(before)
    assert "tf32" in launched["mix"].asm["ptx"]


@pytest.mark.parametrize(
    ("dtype", "width", "causal", "shared", "drop"),
    [
        (torch.float32, 64, False, False, 0.1),
        (torch.bfloat16, 64, False, False, 0.1),
        (torch.bfloat16, 20, True, True, 0.0),
        (torch.float32, attention_kernels.WIDEST_HEAD, True, True, 0.0),
    ],
    ids=str,
)
def test_attention(launched, dtype, width, causal, shared, drop):
    q, k, v = (torch.randn(3, 200, 8, width, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    table = torch.randn(1 if shared else 3, 8, 1 if shared else 200, 33, dtype=dtype, requires_grad=True)
    mask = None if causal else torch.zeros(3, 200, dtype=torch.bool)
    index = torch.zeros(399, dtype=torch.long)
    mixed = attention_kernels.attend(q, k, v, table, index, mask, drop, causal)
    torch.autograd.grad(mixed.sum(), (q, k, v, table))
    assert launched.keys() == {"attend", "query_gradient", "key_gradient"}
