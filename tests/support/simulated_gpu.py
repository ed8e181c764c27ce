"""A simulated GPU: tensors that say they are on the device ``gpu`` and hold real numbers on the CPU.

Every operation passes a dispatch mode, which

- computes on the CPU, so that branches see real numbers and results can be compared;
- raises :class:`DeviceMismatchError` where operands are on different devices, as torch does on a GPU;
- records the waits: operations in which the host needs a value of the device, or copies from it or to it.

:func:`install` changes torch for the whole process, so it needs one of its own.
"""

import contextlib
import functools
import re
import sys
import traceback
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "gpu"
SIMULATED = "POSNET_SIMULATED_GPU"  # a process with this in its environment has the simulated GPU
aten = torch.ops.aten

# Operations whose result, or its shape, the host needs at once.
WAITING = {
    aten._local_scalar_dense, aten._unique2, aten.bincount, aten.equal, aten.masked_select, aten.multinomial,
    aten.nonzero, aten.unique_consecutive, aten.unique_dim,
}  # fmt: skip
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}
COPYING = {aten.copy_, aten._to_copy}
# Beside pointwise operations, which read a number on the CPU as a kernel's argument.
TAKING_NUMBERS = {aten.masked_fill, aten.masked_fill_, aten.fill, aten.fill_}


class DeviceMismatchError(RuntimeError):
    """Operands on different devices."""


def tree_leaves(each):
    """Yield what lists, tuples and dicts hold, of operands: torch's own function takes five times as long."""
    for one in each.values() if isinstance(each, dict) else each:
        if isinstance(one, tuple | list | dict):
            yield from tree_leaves(one)
        else:
            yield one


def tree_map(function, each):
    """The same lists, tuples and dicts of what a function makes of each operand."""
    if isinstance(each, tuple | list):
        return type(each)([tree_map(function, one) for one in each])
    if isinstance(each, dict):
        return {name: tree_map(function, one) for name, one in each.items()}
    return function(each)


class GPUTensor(torch.Tensor):
    """A tensor on the simulated device. `held`: its numbers, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"GPUTensor({self.held})"

    def tolist(self):  # torch has none for classes of Python
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), named=None):
        raise RuntimeError(f"{operation} outside of the simulation")


class SimulatedGPU(TorchDispatchMode):
    """The device, while the mode is on.

    Attributes:
        waits: the operations that waited, each with the place in the code that asked for it.
    """

    def __init__(self):
        super().__init__()
        self.device, self.draws_as_a_cpu = torch.device(NAME, 0), True
        self.waits = []

    @contextlib.contextmanager
    def counted_waits(self):
        """A list that names, after the block, the operations that waited in it."""
        found, before = [], len(self.waits)
        yield found
        found.extend(self.waits[before:])

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        named = dict(named or {})
        operands = [each for each in tree_leaves((arguments, named)) if isinstance(each, torch.Tensor)]
        on_gpu = [each for each in operands if isinstance(each, GPUTensor)]
        device = named.get("device")
        to_gpu = bool(on_gpu) if device is None else torch.device(device).type == NAME
        if not on_gpu and not to_gpu:
            return operation(*arguments, **named)
        if torch.is_inference_mode_enabled():  # where torch does not take operations apart before it calls the mode
            with self:
                result = operation.decompose(*arguments, **named)
            if result is not NotImplemented:
                return result
        if device is not None:
            named["device"] = torch.device("cpu")
        self._check(operation, operands, on_gpu)
        self._record(operation, arguments, named, on_gpu, to_gpu)
        changed = {id(each.held): each for each in on_gpu}  # in place, or as out=
        arguments, named = tree_map(_held, (arguments, named))
        result = AS_ON_A_CPU.get(operation, operation)(*arguments, **named)

        def wrapped(each):
            if not isinstance(each, torch.Tensor) or not to_gpu:
                return each
            if id(each) in changed:
                return changed[id(each)]
            with torch.inference_mode(each.is_inference()):  # a view of a tensor from outside of it is none of it
                return GPUTensor(each)

        return tree_map(wrapped, result)

    def _check(self, operation, operands, on_gpu):
        packet = operation.overloadpacket
        if not on_gpu or packet in COPYING or packet in INDEXING:  # an index may be on the CPU: torch copies it
            return
        number_allowed = torch.Tag.pointwise in operation.tags or packet in TAKING_NUMBERS
        for each in operands:
            if not isinstance(each, GPUTensor) and not (number_allowed and each.dim() == 0):
                shapes = ", ".join(f"{tuple(one.shape)} on {one.device.type}" for one in operands)
                raise DeviceMismatchError(f"{operation}: operands {shapes}, at {place()}")

    def _record(self, operation, arguments, named, on_gpu, to_gpu):
        packet = operation.overloadpacket
        if packet in COPYING:
            source_on_gpu = isinstance(arguments[packet is aten.copy_], GPUTensor)
            target_on_gpu = isinstance(arguments[0], GPUTensor) if packet is aten.copy_ else to_gpu
            non_blocking = named.get("non_blocking") or arguments[2:3] == (True,)
            waits = source_on_gpu != target_on_gpu and not non_blocking
        elif packet in INDEXING:
            index = [each for each in arguments[1] if each is not None]
            masked = any(each.dtype == torch.bool for each in index)
            filled = packet is not aten.index and arguments[2].numel() == 1  # torch makes it a masked_fill
            waits = (masked and not filled) or not all(isinstance(each, GPUTensor) for each in index)
        elif operation is aten.repeat_interleave.Tensor:
            waits = named.get("output_size") is None
        else:
            waits = packet in WAITING
        if waits:
            self.waits.append(f"{packet} at {place()}")


def place():
    """The innermost line of this repository on the stack, outside of this file."""
    root = str(Path(__file__).parents[2])
    for frame, line in traceback.walk_stack(sys._getframe()):
        file = frame.f_code.co_filename
        if file.startswith(root) and file != __file__ and ".venv" not in file:
            return f"{Path(file).relative_to(root)}:{line}"
    return "the backward pass"


def _held(each):
    return each.held if isinstance(each, GPUTensor) else each


def _dropout(x, probability, train):
    """As dropout on a CPU draws it, so that results can be compared."""
    if not train:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    kept = torch.empty_like(x).bernoulli_(1 - probability)
    return x * kept.div(1 - probability), kept.bool()


AS_ON_A_CPU = {aten.native_dropout.default: _dropout}


class _Backend(_DummyBackendModule):
    """What torch asks a device's module for."""

    def get_amp_supported_dtype(self):
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, *_):
        return torch.get_rng_state()

    def set_rng_state(self, *_):
        pass


_LIBRARIES = []


def install():
    """Make the device ``gpu`` known to this process."""
    _setup_privateuseone_for_python_backend(NAME, _Backend())
    torch._C._set_only_lift_cpu_tensors(True)  # so that torch.tensor(..., device=) passes the mode
    torch.__future__.set_swap_module_params_on_conversion(True)  # tied weights stay tied
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    casting = torch.library.Library("aten", "IMPL")
    for rule, cast in AUTOCAST.items():
        for operation in _listed(rule):
            casting.impl(operation, functools.partial(_autocast, operation, cast), "AutocastPrivateUse1")
    _LIBRARIES.extend([others, casting])


def _listed(rule):
    """The operations to which a rule of torch's autocast for GPUs applies, as its header lists them."""
    header = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
    (block,) = re.findall(rf"#define AT_FORALL_{rule}\(_\)(.*?)\n\n", header.read_text(), flags=re.DOTALL)
    for name, overload in re.findall(r"_\((\w+)(?:, (\w+))?\)", block):
        packet, overload = getattr(aten, name, None), overload or "default"
        if packet is not None and overload in packet.overloads():
            yield getattr(packet, overload)


def _autocast(operation, cast, *arguments, **named):
    key = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
    with torch._C._ExcludeDispatchKeyGuard(key):
        arguments, named = cast(operation, arguments, named)
        return operation(*arguments, **named)


def _is_cast(each):
    return isinstance(each, torch.Tensor) and each.is_floating_point() and each.dtype != torch.float64


def _to(dtype):
    def cast(operation, arguments, named):
        chosen = dtype or torch.get_autocast_dtype(NAME)
        return tree_map(lambda each: each.to(chosen) if _is_cast(each) else each, (arguments, named))

    return cast


def _widest(operation, arguments, named):
    dtypes = {each.dtype for each in tree_leaves((arguments, named)) if _is_cast(each)}
    return _to(torch.float32 if torch.float32 in dtypes else None)(operation, arguments, named)


def _result_in_float32(operation, arguments, named):
    if not _is_cast(arguments[0]):
        return arguments, named
    bound = [argument.name for argument in operation._schema.arguments[: len(arguments)]]
    given = named.get("dtype") or dict(zip(bound, arguments, strict=True)).get("dtype")
    return arguments, named if given else named | {"dtype": torch.float32}


AUTOCAST = {
    "LOWER_PRECISION_FP": _to(None),
    "FP32": _to(torch.float32),
    "FP32_SET_OPT_DTYPE": _result_in_float32,
    "PROMOTE": _widest,
}
