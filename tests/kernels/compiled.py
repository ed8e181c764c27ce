"""Run by test_kernels.py: every program is compiled to machine code for GPUs that this machine does not have."""

import pytest
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from posnet_fairseq.ops.kernels import attention_kernels

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

    monkeypatch.setattr(attention_kernels, "launch", compile_only)
    driver.set_active(Gpu(request.param))
    return compiled


# Sentences, heads, queries, tokens, γ.
USUAL = 3, 8, 200, 200, (1, 1)
# Triton compiles arguments equal to 1 as constants: numbers of heads, queries and tokens among them.
ONES = [(3, 1, 200, 1, (3, 2)), (1, 24, 1, 200, (3, 2))]


def test_tf32(launched):
    """Products of float32 on tensor cores, where torch may."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        q, table = torch.randn(1, 2, 64, 64), torch.rand(1, 2, 1, 3)
        attention_kernels.attend(q, q, q, table, torch.zeros(127, dtype=torch.long))
    finally:
        torch.set_float32_matmul_precision(before)
    assert "tf32" in launched["attend"].asm["ptx"]


@pytest.mark.parametrize(
    ("shape", "dtype", "width", "causal", "shared", "drop"),
    [
        (USUAL, torch.float32, 64, False, False, 0.1),
        (USUAL, torch.bfloat16, 64, False, False, 0.1),
        (USUAL, torch.bfloat16, 20, True, True, 0.0),
        (USUAL, torch.float32, attention_kernels.WIDEST_HEAD, True, True, 0.0),
        *((shape, torch.float32, 20, False, False, 0.1) for shape in ONES),
    ],
    ids=str,
)
def test_attention(launched, shape, dtype, width, causal, shared, drop):
    batch, heads, queries, keys, length_ratio = shape
    q, k, v = (torch.randn(batch, rows, heads, width, dtype=dtype).transpose(1, 2) for rows in (queries, keys, keys))
    table = torch.randn(1 if shared else batch, heads, 1 if shared else queries, 33, dtype=dtype)
    inputs = [x.requires_grad_() for x in (q, k, v, table)]
    mask = None if causal else torch.zeros(batch, keys, dtype=torch.bool)
    index = torch.zeros((queries - 1) * length_ratio[0] // length_ratio[1] + keys, dtype=torch.long)
    mixed = attention_kernels.attend(*inputs, index, mask, drop, causal, length_ratio=length_ratio)
    torch.autograd.grad(mixed.sum(), inputs)
    assert launched.keys() == {"attend", "query_gradient", "key_gradient"}
