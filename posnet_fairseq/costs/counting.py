"""Parameters of models, and multiplications of mixers."""

import copy
import dataclasses
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, sdpa_flop

from posnet_fairseq.inference.model_loading import NoRandomNumbers
from posnet_fairseq.inference.stored_energies import mixers_with_energies, parameter_count, precompute
from posnet_fairseq.mixers.bases.building import build_mixer
from posnet_fairseq.mixers.bases.mixer_options import choices
from posnet_fairseq.mixers.bases.recurrent import RecurrentMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.transformer.architectures import options_of
from posnet_fairseq.transformer.model import Transformer, build_transformer
from posnet_fairseq.transformer.sizes import SIZES, of_arch

# Beyond it, recurrences would be computed for many tokens, instead of their shapes.
LONGEST_ON_CPU = 2**10
# That of CPUs is missing in torch's table of formulas.
_FORMULAS = {**flop_registry, torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop}
del _FORMULAS[torch.ops.aten.convolution]  # over four tokens, and no product of matrices


def _scan_flops(steps: Tensor, values: Tensor, writes: Tensor, *_: Any, **__: Any) -> int:
    """Of w_n B_nᵀ, which a token writes into the states h of Mamba, and of h_n C_n, which it reads."""
    return 4 * values.numel() * writes.size(-1)


_FORMULAS[torch.ops.posnet.selective_scan] = _scan_flops


def build(
    mixer: str,
    size: str,
    words: int = 43650,
    max_positions: int = 128,
    device: str = "meta",
    **options: str | bool | int,
) -> Transformer:
    """Return a model of a size with shared embeddings, in evaluation mode; its weights take no memory on ``meta``.

    `mixer` is as in :func:`posnet_fairseq.transformer.architectures.options_of`.
    """
    with torch.device(device):
        return build_transformer(options_of(mixer, size, max_positions, **options), words, words).eval()


class Cost(NamedTuple):
    """Parameters of a model, and multiplications of a mixer for one sentence: the encoder's, if it may stand there.

    Where the mixers of its layers differ, their mean, without a formula.
    """

    parameters: int
    formula: str | None  # that the mixer declares
    operations: int


def costs(mixer: str, size: str, words: int, length: int) -> tuple[Cost, Cost]:
    """Return costs of a model in training, and with stored energies; `mixer` is as in :func:`build`."""
    if "," in mixer:
        with NoRandomNumbers():
            model = build(mixer, size, words)
        found = _mean_cost(model, length)
        precompute(model)
        return found, _mean_cost(model, length)
    built = _different_layers(mixer, size)
    # On the meta device torch computes shapes in Python, and imports its compiler for that, in more than a second.
    device = "cpu" if length <= LONGEST_ON_CPU else "meta"
    with NoRandomNumbers():
        model = build(mixer, size, words, device=device, encoder_layers=built, decoder_layers=built)
    more = SIZES[size].layers - built
    trained = stored = _cost(model, mixer, length, more)
    if mixers_with_energies(model):
        precompute(model)
        stored = _cost(model, mixer, length, more)
    return trained, stored._replace(formula=get_mixer(mixer).stored_operations_formula or trained.formula)


def grid_costs(
    mixer: str, size: str, grid: tuple[int, int], extra_tokens: int, every_choice: bool = True
) -> dict[str, Cost]:
    """Return costs of a mixer alone on a grid: with its defaults, and if asked for with `every_choice` of an option.

    The names are empty for the defaults, and such as ``irpe_method=cross``.

    Parameters are those of one layer, and operations those for one image.
    """
    shape, cls = SIZES[size], get_mixer(mixer)
    of_choices = [(option.name, choices(option) or ()) for option in dataclasses.fields(cls.GridConfig or cls.Config)]
    others = [{name: choice} for name, several in of_choices for choice in several if every_choice]
    found: dict[str, Cost] = {}
    seen: list[Any] = []
    for options in ({}, *others):
        with torch.device("meta"), NoRandomNumbers():
            place: dict[str, Any] = {"grid": grid, "extra_tokens": extra_tokens}
            built = build_mixer(mixer, shape.embed_dim, shape.attention_heads, **place, **options).eval()
        if built.settings.options in seen:  # what is chosen is the default
            continue
        seen.append(built.settings.options)
        name = "".join(f"{option}={choice}" for option, choice in options.items())
        found[name] = Cost(parameter_count(built), None, _count(built, built.max_positions))
    return found


def _different_layers(mixer: str, size: str) -> int:
    """Return the number of layers on each side that differ; further ones are like the last of them."""
    cls, shape = get_mixer(mixer), SIZES[size]
    options = [field for field in dataclasses.fields(cls.Config) if field.metadata.get("first_layers")]
    first = [layers for option in options if (layers := of_arch(cls, option, shape)) is not None]
    return int(min(shape.layers, 1 + max(first, default=0)))


def _cost(model: Transformer, name: str, length: int, more: int) -> Cost:
    """Return the cost of a model of a mixer that has `more` layers on each side, like the last."""
    encoder, decoder = model.encoder.layers, model.decoder.layers
    mixer = next(module for module in model.modules() if isinstance(module, get_mixer(name)))
    others = more * (parameter_count(encoder[-1]) + parameter_count(decoder[-1]))
    return Cost(parameter_count(model) + others, mixer.operations_formula, multiplications(mixer, length))


def _mean_cost(model: Transformer, length: int) -> Cost:
    layers: Any = model.encoder.layers
    operations = sum(multiplications(layer.self_attn, length) for layer in layers) // len(layers)
    return Cost(parameter_count(model), None, operations)


def multiplications(mixer: TokenMixer, length: int) -> int:
    """Return the multiplications of products of matrices in a full pass of a mixer on the meta device over a sentence.

    A product and the sum that it is added to count once, as in papers. Beyond the clip distance K their number is a
    polynomial of the second degree, which torch's own counts at three lengths tell: for long sentences mixers compute
    some products otherwise. In cross-attention the memory has the same length.
    """
    if isinstance(mixer, RecurrentMixer):  # blocks and chunks of tokens, so no polynomial; sentences of any length
        any_length = copy.copy(mixer)
        any_length.settings = dataclasses.replace(mixer.settings, max_positions=length)
        return _count(any_length, length)
    first = min(_reach(mixer), mixer.max_positions - 3) + 1
    if length < first:
        return _count(mixer, length)
    one, two, three = (_count(mixer, first + more) for more in range(3))
    beyond = length - first
    return one + beyond * (two - one) + beyond * (beyond - 1) // 2 * (three - 2 * two + one)


def _reach(mixer: TokenMixer) -> int:
    """Return the distance up to which the mixer tells offsets apart by its options, 0 if there is none."""
    options = mixer.settings.options
    fields = (field for field in dataclasses.fields(options) if field.metadata.get("reach"))
    return next((getattr(options, field.name) or 0 for field in fields), 0)


@torch.no_grad()
def _count(mixer: TokenMixer, length: int) -> int:
    device = next((parameter.device for parameter in mixer.parameters()), "meta")
    widths = mixer.settings.embed_dim, mixer.settings.memory_dim
    query, memory = (torch.zeros(1, length, width, device=device) for width in widths)
    with _Products() as products:
        mixer(query, memory if mixer.place == "cross" else None, positions=query[0], memory_positions=memory[0])
    return products.flops // 2  # a product and its sum are two of them


class _Products(TorchDispatchMode):
    """Counts as torch's own counter does, which imports all of torch's compiler, in more than a second."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Do an operation, and count it."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _FORMULAS:
            self.flops += _FORMULAS[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result
