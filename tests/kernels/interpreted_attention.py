"""Run by test_kernels.py with TRITON_INTERPRET=1: attention by kernels against torch's operations in float64.

In bfloat16 the interpreter's products are wrong; that data type is compiled only, in compiled.py.
"""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from posnet_fairseq.ops import kernels
from posnet_fairseq.ops.kernels import attention_kernels, launching
from posnet_fairseq.ops.offsets import clip_index, piecewise_index, scaled
from posnet_fairseq.shared.errors import UsageError
from support.building import build_mixer, vectors


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes, whether all queries share the table, and what is hidden."""

    batch: int = 2
    heads: int = 2
    queries: int = 70
    keys: int = 70
    width: int = 12
    clip_distance: int = 3
    shared: bool = False
    padded: bool = False
    causal: bool = False
    ratio: tuple = (1, 1)


SHAPES = [
    Shape(batch=1, heads=1, queries=1, keys=1, width=5, clip_distance=1),
    Shape(queries=100, keys=100, padded=True),
    Shape(causal=True, shared=True, clip_distance=8),
    Shape(causal=True, padded=True, queries=40, keys=40),
    Shape(queries=40, keys=90, width=20, clip_distance=9, padded=True, ratio=(7, 3)),
    Shape(queries=90, keys=40, width=33, shared=True, ratio=(3, 7)),
    Shape(batch=1, heads=1, queries=150, keys=150, width=8),
]


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(1)


def case(shape, dtype=torch.float32, index=clip_index):
    """q, k, v and table with gradients; index and mask, of which the last sentence is nothing but padding."""
    sizes = (shape.queries, shape.keys, shape.keys)
    q, k, v = (torch.randn(shape.batch, n, shape.heads, shape.width, dtype=dtype).transpose(1, 2) for n in sizes)
    batch, queries = (1, 1) if shape.shared else (shape.batch, shape.queries)
    table = torch.randn(batch, shape.heads, queries, 2 * shape.clip_distance + 1, dtype=dtype)
    offsets = torch.arange(1 - shape.keys, scaled(shape.queries - 1, shape.ratio) + 1)
    lengths = torch.tensor([shape.keys, 0]) if shape.padded else torch.tensor([shape.keys])
    lengths[0] = max(1, shape.keys // 2)
    mask = (torch.arange(shape.keys) >= lengths[:, None]) if shape.padded else None
    return [tensor.requires_grad_() for tensor in (q, k, v, table)], index(offsets, shape.clip_distance), mask


def reference(tensors, index, mask, shape, kept=1.0):
    """Straight from the formula; `kept` is what dropout multiplies the weights with."""
    q, k, v, table = tensors
    offsets = scaled(torch.arange(shape.queries), shape.ratio)[:, None] - torch.arange(shape.keys)
    rows = index.long()[offsets + shape.keys - 1].expand(shape.batch, shape.heads, -1, -1)
    energy = q @ k.mT + table.expand(shape.batch, -1, shape.queries, -1).gather(-1, rows)
    hidden = torch.zeros(shape.batch, 1, shape.queries, shape.keys, dtype=torch.bool)
    hidden = hidden | (offsets < 0) if shape.causal else hidden
    hidden = hidden if mask is None else hidden | mask[:, None, None]
    return (energy.masked_fill(hidden, -1e30).softmax(dim=-1) * kept) @ v


def assert_equal(shape, index=clip_index, dtype=torch.float32, **close):
    tensors, rows, mask = case(shape, dtype, index)
    mixed = attention_kernels.attend(*tensors, rows, mask, causal=shape.causal, length_ratio=shape.ratio)
    upstream = torch.randn(mixed.shape).to(dtype)
    found = mixed, *torch.autograd.grad(mixed, tensors, upstream)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    mixed = reference(exact, rows, mask, shape)
    expected = mixed, *torch.autograd.grad(mixed, exact, upstream.double())
    for name, one, other in zip(("mixed", "to q", "to k", "to v", "to table"), found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, **close, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        *((shape, clip_index) for shape in (Shape(padded=True), *SHAPES)),
        *((shape, piecewise_index) for shape in SHAPES[1:3]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_float32(shape, index):
    assert_equal(shape, index, rtol=1e-4, atol=2e-5)


def test_float16():
    assert_equal(SHAPES[1], dtype=torch.float16, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
def test_dropout(causal):
    """What it drops is found with values of one token each; all gradients follow from that."""
    shape, drop, seed = Shape(queries=80, keys=80, width=80, causal=causal), 0.3, torch.tensor(7)
    tensors, rows, _ = case(shape)
    settings = drop, causal, 1, 1
    ones = torch.eye(80).expand(2, 2, -1, -1)
    q, k, _, table = tensors
    weights, _ = attention_kernels._attend(q, k, ones, table, rows.int(), None, seed, *settings)
    kept = (weights != 0) / (1 - drop)
    share = float((weights != 0)[:, :, -1].float().mean())
    assert abs(share - (1 - drop)) < 0.1
    assert not torch.equal(kept[0, 0], kept[0, 1])
    assert not torch.equal(kept[0, 0], kept[1, 0])
    found, _ = attention_kernels._attend(*tensors, rows.int(), None, seed, *settings)
    expected = reference(tensors, rows, None, shape, kept.detach())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    upstream = torch.randn(found.shape)
    both = [torch.autograd.grad(mixed, tensors, upstream) for mixed in (found, expected)]
    torch.testing.assert_close(*both, rtol=1e-3, atol=2e-4)


def test_dropout_is_drawn_anew():
    tensors, rows, _ = case(Shape())
    first, second = (attention_kernels.attend(*tensors, rows, drop_probability=0.5) for _ in range(2))
    assert not torch.equal(first, second)


MIXERS = [
    ("shaw", {}),
    ("scalar_bias", {}),
    ("scalar_bias", {"scalar_bias_index": "piecewise"}),
    ("irpe", {}),
    ("irpe", {"irpe_mode": "bias"}),
    ("irpe", {"irpe_undirected": True, "irpe_share_heads": "separate"}),
]
OTHERS = [("shaw", {"shaw_values": True}), ("irpe", {"irpe_on": "qk"}), ("irpe", {"irpe_on": "kv"}), ("relative", {})]


@pytest.fixture
def used(monkeypatch):
    """As on a GPU; which calls were computed by kernels."""
    calls = []
    monkeypatch.setattr(kernels, "are_used", lambda value: True)
    attend = attention_kernels.attend
    monkeypatch.setattr(attention_kernels, "attend", lambda *a: calls.append(a) or attend(*a))
    return calls


@pytest.mark.parametrize("place", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize(("name", "options"), MIXERS, ids=str)
def test_mixers(used, monkeypatch, name, options, place):
    if name == "scalar_bias" and place == "cross":
        return
    mixer = build_mixer(name, place, embed_dim=24, num_heads=2, **options).float()
    query = torch.randn(2, 40, 24, requires_grad=True)
    memory = torch.randn(2, 50, 24, requires_grad=True) if place == "cross" else query
    mask = torch.arange(memory.size(1)) >= torch.tensor([memory.size(1), 17])[:, None]
    context = {"padding_mask": None if place == "decoder" else mask} | vectors(100, 24, torch.float32)
    context["length_ratio"] = (5, 4) if place == "cross" else (1, 1)
    real = ~mask if place == "encoder" else ...
    inputs, found = [query, memory, *mixer.parameters()], []
    cotangent = torch.randn(2, 40, 24)[real]
    for is_used in (True, False):
        monkeypatch.setattr(kernels, "are_used", lambda value, is_used=is_used: is_used)
        output = mixer(query, memory, **context)[real]
        found.append((output, torch.autograd.grad(output, inputs, cotangent)))
    assert len(used) == 1
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("name", "options"), OTHERS, ids=str)
def test_mixers_that_are_no_such_sum(used, name, options):
    x = torch.randn(1, 5, 8)
    build_mixer(name, **options).float()(x, **vectors(10, 8, torch.float32))
    assert not used


def test_weights_steps_and_deterministic_algorithms_are_not_computed_by_kernels(used):
    mixer, x = build_mixer("shaw", "decoder").float(), torch.randn(1, 5, 8)
    mixer(x, need_weights=True)
    mixer.step(x[:, :1], mixer.init_state(1))
    torch.use_deterministic_algorithms(True)
    try:
        mixer(x)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not used


def test_wide_heads_are_not_computed_by_kernels(used):
    wide = build_mixer("shaw", embed_dim=272, num_heads=1).float()
    wide(F.pad(torch.randn(1, 5, 8), (0, 264)))
    assert not used


def test_operators_of_torch():
    shape = Shape(batch=1, heads=1, queries=9, keys=9, padded=False)
    tensors, rows, _ = case(shape)
    settings = 0.0, False, 1, 1
    given = *tensors, rows.int(), None, None
    torch.library.opcheck(attention_kernels._attend, (*given, *settings))
    mixed, statistics = attention_kernels._attend(*given, *settings)
    given = [x.detach() if torch.is_tensor(x) else x for x in (*given, mixed, statistics, mixed)]
    torch.library.opcheck(attention_kernels._gradients, (*given, *settings))


def test_compiled_around(used, monkeypatch):
    mixer = build_mixer("shaw", "decoder").float()
    compiled = torch.compile(mixer, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, length in ((2, 30), (3, 37)):
        x, found = torch.randn(batch, length, 8, requires_grad=True), []
        for call in (mixer, compiled):
            output = call(x)
            found.append((output, *torch.autograd.grad(output.square().sum(), (x, *mixer.parameters()))))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
def test_too_little_memory_is_no_fault_of_a_program(error):
    class Program:
        def __getitem__(self, grid):
            raise error("Triton Error [CUDA]: out of memory")

    with pytest.raises(error, match="out of memory"):
        launching.launch(Program(), (1,), torch.zeros(1))


def test_a_program_that_does_not_run(monkeypatch):
    class Program:
        def fn(self):
            pass

        def __getitem__(self, grid):
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable")

    with pytest.raises(UsageError) as error:
        launching.launch(Program(), (1,), torch.zeros(1))
    assert "The kernel fn cannot be compiled or run on this processor with triton 3" in str(error.value)
    assert "Please specify via CC environment variable. Set the environment variable POSNET_KERNELS=off" in str(
        error.value
    )
