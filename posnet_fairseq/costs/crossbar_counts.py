"""What crossbars could do of a translation: multiplications by stored weights, reads and conversions."""

import operator
from dataclasses import dataclass

from posnet_fairseq.analog.crossbar_parts import linears
from posnet_fairseq.costs import counting
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer


@dataclass(frozen=True)
class Count:
    """Operations of one sentence."""

    static: float = 0  # multiplications by weights that are stored before inference, in a full pass
    digital: float = 0  # all others, as queries by keys and values by weights of content-based mixers
    # Of crossbars, each of which multiplies a matrix by a vector at once, in a translation by word with a beam of 1:
    reads: float = 0
    dac: float = 0  # conversions of inputs for these reads
    adc: float = 0  # conversions of their outputs

    def __add__(self, other: "Count") -> "Count":
        return Count(*map(operator.add, vars(self).values(), vars(other).values()))

    def per(self, number: float) -> "Count":
        """Return the count divided by a number."""
        return Count(*(each / number for each in vars(self).values()))


def count(mixer: str, size: str, words: int, length: int, tile_size: int) -> Count:
    """Return the count of a model for a sentence whose source and target have `length` tokens.

    On crossbars is all that :func:`posnet_fairseq.analog.convert.put_on_crossbars` can put there.
    """
    model = counting.build(mixer, size, words)
    total, counts = Count(), dict[str, Count]()  # equal settings count alike
    for part in ("projections", "feed-forward", "output"):
        for _, _, linear in linears(model, part):
            total += _matrix(linear.out_features, linear.in_features, tile_size, length)
    for module in model.modules():
        if isinstance(module, TokenMixer):
            key = repr(module.settings)
            if key not in counts:
                counts[key] = mixing(module, length, tile_size)
            total += counts[key]
    return total


def _matrix(outputs: int, inputs: int, tile_size: int, vectors: float) -> Count:
    """Return a matrix that is multiplied by a number of vectors."""
    rows, columns = -(-outputs // tile_size), -(-inputs // tile_size)
    return Count(
        static=vectors * outputs * inputs,
        reads=vectors * rows * columns,
        dac=vectors * inputs * rows,
        adc=vectors * outputs * columns,
    )


def mixing(mixer: TokenMixer, length: int, tile_size: int) -> Count:
    """Return what a mixer does with `length` tokens, and in cross-attention as many of memory, but project them."""
    if not isinstance(mixer, PositionBasedMixer):
        return Count(digital=_digital(mixer, length))
    if mixer.place == "encoder":
        return _matrix(length, length, tile_size, mixer.embed_dim)
    # A step reads one row, with all values that there are.
    values, width = range(1, length + 1) if mixer.causal else [length] * length, mixer.embed_dim
    reads = width * sum(-(-n // tile_size) for n in values)
    return Count(static=length**2 * width, reads=reads, dac=width * sum(values), adc=reads)


def _digital(mixer: TokenMixer, length: int) -> float:
    """Return multiplications of a mixer but those of tokens by its linear layers."""
    projections = sum(linear.weight.numel() * length for _, _, linear in linears(mixer, "projections"))
    return counting.multiplications(mixer, length) - projections
