"""One page to look at every head of every layer, with its data inside."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2
import torch
from torch import Tensor

from posnet_fairseq.plots.inspection import Mixing
from posnet_fairseq.plots.matrices import KEYS, PLACES, QUERIES

LEVELS = 65534  # steps between the smallest and the largest number of a head


def render(mixings: Sequence[Mixing], title: str) -> str:
    """Return the HTML of a page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    # "<" in a token must not end the script element that contains the data.
    data = json.dumps([_content(mixing) for mixing in mixings], ensure_ascii=False).replace("<", "\\u003c")
    return environment.get_template("page.html").render(title=title, data=data)


def _content(mixing: Mixing) -> dict[str, object]:
    shown = {"mixing weights α": mixing.weights, "energies before the softmax": mixing.energies}
    shown["what positions add to energies"] = mixing.added
    if mixing.query_gates is not None and mixing.weights is not None:
        shown["latent weights β of the gate"] = mixing.gates
        shown["α·β"] = mixing.weights * mixing.gates
    return {
        "place": PLACES[mixing.place],
        "layer": mixing.layer,
        "mixer": mixing.mixer,
        "queries": mixing.queries,
        "keys": mixing.keys,
        "queryAxis": QUERIES[mixing.place],
        "keyAxis": KEYS[mixing.place],
        "at": mixing.at.tolist() if mixing.scaled else None,
        "reach": mixing.reach,
        "shown": {
            name: [_packed(head) for head in matrices] for name, matrices in shown.items() if matrices is not None
        },
    }


def _packed(matrix: Tensor) -> dict[str, float | str]:
    """The smallest and the largest number of a matrix, and all numbers as steps between them; NaN is one step more."""
    there = matrix[matrix.isfinite()]
    low, high = (float(there.min()), float(there.max())) if len(there) else (0.0, 0.0)
    steps = ((matrix - low) / (high - low or 1.0) * LEVELS).round()
    steps = torch.where(matrix.isfinite(), steps, LEVELS + 1)
    numbers = steps.flatten().to(torch.int32).numpy().astype("<u2")
    return {"low": low, "high": high, "steps": base64.b64encode(numbers.tobytes()).decode()}
