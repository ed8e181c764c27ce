"""Statistics of segments in a small form for JSON."""

import base64
import lzma
from collections.abc import Mapping
from typing import Any

import numpy as np

from posnet_eval.metrics.base import FloatArray

STEPS = (1, 3)  # columns between n-grams of two lengths, in BLEU and in chrF
_MOST_BYTES, _MEMORY = 2**26, 2**27  # of numbers, and of lzma, which needs half of it at its highest level

# The highest level with a dictionary of 4 MiB: its own, of 64, takes most of the time and is larger than the numbers.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 2**22}]


def pack(statistics: FloatArray) -> dict[str, Any]:
    """Whole numbers in a form for JSON.

    Statistics of BLEU and chrF count n-grams of 1, 2 ... tokens, of which a sentence has one less each time. So each
    column is written as its difference from an earlier one, byte by byte, most of which are then equal: half of what
    lzma makes of the numbers themselves.

    Args:
        statistics: (N, K) numbers below 2³¹.
    """
    return min((_packed(statistics, step) for step in STEPS), key=lambda packed: len(packed["lzma"]))


def _packed(statistics: FloatArray, step: int) -> dict[str, Any]:
    columns = statistics.T.astype("<i4", order="C")
    columns[step:] = columns[:-step] - columns[step:]
    planes = columns[..., None].view("u1").transpose(2, 0, 1)
    data = lzma.compress(planes.tobytes(), filters=_FILTERS)
    return {"shape": list(statistics.shape), "step": step, "lzma": base64.b64encode(data).decode("ascii")}


def unpack(packed: Mapping[str, Any]) -> FloatArray:
    """The numbers of :func:`pack`.

    Raises:
        LookupError, TypeError, ValueError, lzma.LZMAError: they are of another form or size.
    """
    (segments, width), step = packed["shape"], packed["step"]
    if {type(segments), type(width)} != {int} or step not in STEPS or not 0 < 4 * width * segments <= _MOST_BYTES:
        raise ValueError(f"{segments!r:.20} segments of {width!r:.20} numbers in steps of {step!r:.20}")
    unpacker = lzma.LZMADecompressor(memlimit=_MEMORY)
    data = unpacker.decompress(base64.b64decode(packed["lzma"]), 4 * width * segments + 1)
    planes = np.frombuffer(data, "u1").reshape(4, width, segments)
    columns = np.ascontiguousarray(planes.transpose(1, 2, 0)).view("<i4")[..., 0]
    for column in range(step, width):
        columns[column] = columns[column - step] - columns[column]
    return columns.T.astype(np.float64)
