"""The memory of a training step, estimated without a machine that could do it."""

import contextlib
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from posnet_fairseq.analog.weight_noise import NoisyLinear, add_weight_noise
from posnet_fairseq.mixers import attention
from posnet_fairseq.mixers.bases import position_based
from posnet_fairseq.ops import chunks, host_sync
from posnet_fairseq.ops.output_loss import output_loss
from posnet_fairseq.transformer.architectures import options_of
from posnet_fairseq.transformer.model import PADDING, Transformer, build_transformer
from posnet_fairseq.transformer.placement import reads_length_ratio

SMOOTHING = 0.1
# The dtype of the weights, and the bytes a parameter takes beside its weight and gradient: Adam's two moments in
# float32, and for 16-bit weights fairseq's copy of weight and gradient in float32.
PRECISIONS = {"fp32": (torch.float32, 8), "fp16": (torch.float16, 16), "bf16": (torch.bfloat16, 16)}
DDP_BUFFER = 2**28  # elements, at most


class Simulation(TorchDispatchMode):
    """A context in which floating-point tensors have no content, and all bytes are counted, those at the peak, too.

    Integers and booleans are computed: what a model asks of its tokens and masks has its real answer. Memory that an
    operator of torch takes within itself is not counted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0  # bytes of tensors that were made here and are still there, and the most of them
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._known: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Do an operation, and count its results."""
        kwargs = kwargs or {}
        if _makes_integers(tree_leaves((args, kwargs)), func):
            results = tree_map_only(Tensor, self._emptied, func(*args, **kwargs))
        else:
            with self._fake:
                results = func(*args, **kwargs)
        for result in tree_leaves(results):
            if isinstance(result, Tensor):
                self._count(result.untyped_storage())
        return results

    def _emptied(self, tensor: Tensor) -> Tensor:
        return self._fake.from_tensor(tensor) if tensor.is_floating_point() else tensor

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, size)

    def _forget(self, size: int) -> None:
        self.now -= size


def _makes_integers(arguments: Iterable[Any], func: Any) -> bool:
    """Return whether an operation reads integers and booleans only, or makes them of numbers."""
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if tensors:
        return not any(each.is_floating_point() or each.is_complex() for each in tensors)
    dtypes = [each for each in arguments if isinstance(each, torch.dtype)]
    if dtypes:
        return not dtypes[0].is_floating_point
    return func.overloadpacket is torch.ops.aten.arange and not any(isinstance(each, float) for each in arguments)


def training_memory(
    mixer: str,
    size: str,
    tokens: int,
    *,
    words: int,
    length: int,
    precision: str = "bf16",
    chunked: bool = True,
    gpu: bool = True,
    distributed: bool = False,
    **options: Any,
) -> int:
    """Return the bytes of all tensors at the peak of a training step, in fairseq with ``fused_adam``.

    A GPU needs more: its context, and what its allocator leaves between tensors. Each side of the batch has `tokens`
    tokens, padding counted, in sentences of one length; a tenth of the sources have one token less. With ``gpu``,
    attention has a kernel with dropout and chunks of energies are larger. Distributed, legacy_ddp sends gradients from
    a buffer.
    """
    dtype, state_bytes = PRECISIONS[precision]
    cfg = options_of(mixer, size, max(length, 128), **options)
    if reads_length_ratio(cfg) and cfg.length_ratio in (None, "auto"):
        cfg.length_ratio = "1"
    source = torch.randint(PADDING + 3, words, (max(1, tokens // length), length))
    target = source.flip(0)
    source[: len(source) // 10, 0] = PADDING
    # The weight on padding has no content, either: it is hardly ever too much for shared weights.
    exact = mock.patch.object(position_based, "is_exact", return_value=True)
    with _as_on_gpu() if gpu else exact, Simulation() as simulation:
        model = build_transformer(cfg, words, words).train()
        add_weight_noise(model, cfg)
        _convert(model, dtype)
        simulation.peak = simulation.now
        _loss(model, source, target, chunked).backward()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        kept = state_bytes * parameters  # the optimizer's step takes nothing besides: it updates in place
        if distributed:
            kept += min(DDP_BUFFER, parameters) * dtype.itemsize
        return simulation.peak + kept


def _convert(model: nn.Module, dtype: torch.dtype) -> None:
    """Give a simulated model another dtype, in which ``Module.to`` fails."""
    parameters = {each: nn.Parameter(each.to(dtype)) for each in model.parameters()}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, parameters[parameter])
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_floating_point():
                setattr(module, name, buffer.to(dtype))


def _loss(model: Transformer, source: Tensor, target: Tensor, chunked: bool) -> Tensor:
    features = model.decoder.features(target.roll(1, dims=1), model.encoder(source)).x
    if chunked:
        projection = model.decoder.output_projection
        weight = projection.noisy_weight() if isinstance(projection, NoisyLinear) else projection.weight
        return output_loss(features.flatten(0, 1), weight, target.flatten(), SMOOTHING, PADDING).loss
    import posnet_fairseq.fairseq_plugin  # noqa: F401  (imports fairseq as this Python needs it)

    # isort: split
    from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

    log_probs = model.decoder.output_layer(features).log_softmax(dim=-1, dtype=torch.float32)
    loss, _ = label_smoothed_nll_loss(log_probs.flatten(0, 1), target.flatten(), SMOOTHING, PADDING)
    return loss


@contextlib.contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Let a CPU's simulation take what a GPU takes, where the two differ."""
    kernel = torch.nn.functional.scaled_dot_product_attention

    def without_dropout(*tensors: Any, dropout_p: float = 0.0, **kwargs: Any) -> Tensor:
        """On CPUs torch has no kernel with dropout, which on GPUs takes no memory."""
        return kernel(*tensors, **kwargs)

    with (
        mock.patch.object(attention, "is_by_16_bits", return_value=False),
        mock.patch.object(torch.nn.functional, "scaled_dot_product_attention", without_dropout),
        mock.patch.object(chunks, "CPU_LIMIT", chunks.GPU_LIMIT),
        mock.patch.object(host_sync, "DEVICES", ()),
    ):
        yield
