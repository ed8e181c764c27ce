"""One mixer with its projections against attention's, forward and forward with backward."""

import dataclasses
import statistics

import torch

from posnet_fairseq.bench.memory import peak_bytes
from posnet_fairseq.bench.timing import interleaved, median_ratio
from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.mixers.bases.options import configure
from posnet_fairseq.registry import get_mixer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.sizes import SIZES, of_arch

BASELINE = "attention"


def build_mixer(variant, place, size, length):
    """A mixer as the architectures of a size have it; see :func:`build`."""
    shape, cls = SIZES[size], get_mixer(variant.split("+")[0], "--mixers")
    options = {field.name: of_arch(cls, field, shape) for field in dataclasses.fields(cls.Config)}
    return build(variant, place, shape.embed_dim, shape.attention_heads, length, **options)


def build(variant, place, embed_dim, num_heads, length, **options):
    """A mixer by its name, with options of its own after plus signs: shaw+shaw_values, irpe+irpe_on=qkv.

    Args:
        variant: the name.
        place: encoder or decoder.
        embed_dim, num_heads: D, H.
        length: of sentences, N.
        options: those that it has where the name does not say otherwise.
    """
    name, *chosen = variant.split("+")
    cls = get_mixer(name, "--mixers")
    fields = {field.name for field in dataclasses.fields(cls.Config)}
    for option in chosen:
        key, _, value = option.partition("=")
        if key not in fields:
            raise UsageError(f"--mixers {variant}: the options of {name} are {', '.join(sorted(fields)) or 'none'}.")
        options[key] = value or True
    if place not in cls.places:
        raise UsageError(f"--mixers {variant}: {name} stands in {' and '.join(cls.places)} only. Leave it out.")
    configured = configure(cls.Config, options)
    settings = synthetic.settings(place, cls.default_gate, configured, embed_dim, num_heads, max_positions=length)
    return cls(settings)


def run(mixers, length, size="base", tokens=4096, place="encoder", padded=False, rounds=7):
    """Time mixers in turn, with the gates and options they have by default and without dropout.

    Args:
        mixers: names, with options after plus signs: ``shaw+shaw_values``, ``irpe+irpe_on=qkv``.
        length: of sentences, N.
        size: one of :data:`posnet_fairseq.transformer.sizes.SIZES`.
        tokens: in a batch; there are tokens / N sentences.
        place: encoder or decoder self-attention.
        padded: the last tenth of the sentences, at least one, are padded by a tenth of their length.
        rounds: how often everything is timed.

    Returns:
        dict from name to a dict with ``forward`` and ``training`` (seconds of CPU time of a call, and of one with its
        backward pass), ``forward_ratio`` and ``training_ratio`` (medians of ratios to attention in the same round), and
        ``peak`` (bytes that a call with its backward pass allocates at once).
    """
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch, width = max(1, tokens // length), SIZES[size].embed_dim
    x = torch.randn(batch, length, width, device=device, requires_grad=True)
    positions = torch.randn(length, width, device=device, requires_grad=True)
    mask = None
    if padded and place == "encoder":
        mask = torch.zeros(batch, length, dtype=torch.bool, device=device)
        mask[-max(1, batch // 10) :, length - max(1, length // 10) :] = True
    arguments = {"positions": positions, "padding_mask": mask}
    built = {name: build_mixer(name, place, size, length).to(device) for name in dict.fromkeys([BASELINE, *mixers])}
    calls = {name: forward(mixer, x, **arguments) for name, mixer in built.items()}
    trainings = {name: training(mixer, x, **arguments) for name, mixer in built.items()}
    seconds = {"forward": interleaved(calls, rounds), "training": interleaved(trainings, rounds)}
    results = {name: {"peak": peak_bytes(trainings[name])} for name in built}
    for what, measured in seconds.items():
        for name, figures in results.items():
            figures[what] = statistics.median(measured[name])
            figures[f"{what}_ratio"] = median_ratio(measured[name], measured[BASELINE])
    return results


def forward(mixer, x, **arguments):
    """A function that calls a mixer without gradients."""

    def call():
        with torch.inference_mode():
            mixer.eval()(x, **arguments)
        wait()

    return call


def training(mixer, x, **arguments):
    """A function that calls a mixer and its backward pass."""

    def call():
        inputs = [x, *mixer.parameters()]
        if arguments.get("positions") is not None:
            inputs.append(arguments["positions"])
        output = mixer.train()(x, **arguments)
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)
        wait()

    return call


def wait():
    """Until a GPU has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
