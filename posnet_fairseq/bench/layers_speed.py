"""One mixer with its projections against attention's, forward and forward with backward."""

import dataclasses
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from posnet_fairseq.bench.printed_tables import MIB, Measurements
from posnet_fairseq.bench.timing import Time, compared, default_device, peak_bytes
from posnet_fairseq.mixers.bases.building import build_mixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.sizes import SIZES, of_arch

BASELINE = "attention"
VARIANTS = ("shaw+shaw_values", "irpe+irpe_on=qkv")  # measured by default, beside all mixers


def build(variant: str, embed_dim: int, num_heads: int, place: str = "encoder", **arguments: Any) -> TokenMixer:
    """Return a mixer with its default gate and without dropout; its name may have options: ``irpe+irpe_on=qkv``.

    Other arguments are those of :func:`posnet_fairseq.build_mixer`.
    """
    name, *options = variant.split("+")
    places = get_mixer(name, "--mixers").places
    if "grid" not in arguments and place not in places:
        raise UsageError(f"--mixers {variant}: {name} stands in {' and '.join(places) or 'grids'} only. Leave it out.")
    arguments |= {key: value or True for key, _, value in (option.partition("=") for option in options)}
    chosen: Any = {
        "name": name,
        "embed_dim": embed_dim,
        "num_heads": num_heads,
        "causal": place == "decoder",
    } | arguments
    return build_mixer(**chosen)


def measure_layers(
    mixers: Sequence[str], length: int, size: str, tokens: int, place: str, padded: bool, rounds: int
) -> dict[str, tuple[Time, Time, int]]:
    """Time mixers in turn on a batch of `tokens` tokens, in sentences of one length.

    With padding, the last tenth of the sentences, at least one, are padded by a tenth of their length.

    Returns:
        dict from name to the times of a call and of one with its backward pass, and the bytes that the latter allocates
        at once.
    """
    torch.manual_seed(1)
    device = default_device()
    batch, width = max(1, tokens // length), SIZES[size].embed_dim
    x = torch.randn(batch, length, width, device=device, requires_grad=True)
    positions = torch.randn(length, width, device=device, requires_grad=True)
    mask = None
    if padded and place == "encoder":
        mask = torch.zeros(batch, length, dtype=torch.bool, device=device)
        mask[-max(1, batch // 10) :, length - max(1, length // 10) :] = True
    arguments = {"positions": positions, "padding_mask": mask}
    shape, built = SIZES[size], {}
    for name in dict.fromkeys([BASELINE, *mixers]):
        cls = get_mixer(name.split("+")[0], "--mixers")
        options = (each for each in dataclasses.fields(cls.Config) if not each.metadata.get("first_layers"))
        own = {option.name: of_arch(cls, option, shape) for option in options}
        how = {"max_positions": length, "position_embedding": "none", **own}
        built[name] = build(name, width, shape.attention_heads, place, **how).to(device)
    calls = {name: forward(mixer, x, **arguments) for name, mixer in built.items()}
    trainings = {name: training(mixer, x, **arguments) for name, mixer in built.items()}
    once, with_backward = compared(calls, BASELINE, rounds), compared(trainings, BASELINE, rounds)
    return {name: (once[name], with_backward[name], peak_bytes(trainings[name])) for name in built}


def forward(mixer: TokenMixer, x: torch.Tensor, **arguments: Any) -> Callable[[], None]:
    """Return a function that calls a mixer without gradients on tokens `x`, (B, N, D)."""

    def call() -> None:
        with torch.inference_mode():
            mixer.eval()(x, **arguments)

    return call


def training(mixer: TokenMixer, x: torch.Tensor, **arguments: Any) -> Callable[[], None]:
    """Return a function that calls a mixer and its backward pass on tokens `x`, (B, N, D)."""

    def call() -> None:
        inputs = [x, *mixer.parameters()]
        positions = arguments.get("positions")
        if positions is not None:
            inputs.append(positions)
        output = mixer.train()(x, **arguments)
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)

    return call


def tables(options: Namespace) -> Iterator[Measurements | str]:
    """Yield what ``posnet-bench layers`` prints."""
    if options.padded and options.place == "decoder":
        raise UsageError("--padded: a decoder's mixers need no padding mask. Leave it out, or measure --place encoder.")
    if options.mixers is None:
        options.mixers = [*mixer_names(place=options.place), *VARIANTS]
    for length in options.lengths:
        how = options.size, options.tokens, options.place, options.padded, options.rounds
        results = measure_layers(options.mixers, length, *how)
        padded = ", padded" if options.padded else ""
        title = f"N = {length}{padded}, {options.tokens:,} tokens, {options.place}, size {options.size}"
        columns = {"time\nforward": ".2f", "time\nwith backward": ".2f", "memory\nMiB": ",.1f"}
        shown = Measurements(title, columns)
        for name, (once, with_backward, peak) in results.items():
            shown.add(name, once.ratio, with_backward.ratio, peak / MIB)
        yield shown
    yield (
        "Time / attention's: CPU time, or seconds on a GPU, medians of ratios, of a call without gradients and of one "
        "with its backward pass. Memory: the most that the latter allocates at once. No dropout."
    )
