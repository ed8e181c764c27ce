"""Calls of a mixer in float64, on which the laws are tested."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.shared.errors import UsageError

Arguments = dict[str, Any]

CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
LENGTHS = (7, 3)


def tokens(mixer: TokenMixer, length: int = LENGTHS[0]) -> Tensor:
    """Two sentences, (2, N, D), that ask for gradients."""
    return torch.randn(len(LENGTHS), length, mixer.embed_dim, dtype=torch.float64, requires_grad=True)


def call(mixer: TokenMixer) -> tuple[Tensor, Tensor, Arguments]:
    """Query, memory and other arguments of a padded batch with positions, all asking for gradients."""
    query = tokens(mixer)
    memory = tokens(mixer, LENGTHS[0] + 1) if mixer.place == "cross" else query
    p = torch.randn(2, 20, mixer.embed_dim, dtype=torch.float64)
    keys = memory.size(1)
    return (
        query,
        memory,
        {
            "positions": p[0].requires_grad_(),
            "memory_positions": p[1].requires_grad_(),
            "padding_mask": None if mixer.place == "decoder" else torch.arange(keys) >= torch.tensor([[keys], [3]]),
            "length_ratio": (5, 4) if mixer.place == "cross" else (1, 1),
        },
    )


def inputs_of(query: Tensor, memory: Tensor, arguments: Arguments) -> list[Tensor]:
    """The tensors of a call that ask for gradients."""
    vectors = [arguments["positions"], arguments["memory_positions"]]
    return [query, *([memory] if memory is not query else []), *vectors]


def begin(mixer: TokenMixer, memory: Tensor, arguments: Arguments, batch_size: int = len(LENGTHS)) -> DecodingState:
    """The state before the first step."""
    if mixer.place != "cross":
        return mixer.init_state(batch_size)
    names = ("padding_mask", "memory_positions", "length_ratio")
    return mixer.init_state(batch_size, memory, **{name: arguments[name] for name in names})


def steps(
    mixer: TokenMixer, query: Tensor, memory: Tensor, arguments: Arguments, state: DecodingState | None = None
) -> Tensor:
    """One query after another, (B, N, D)."""
    state = state or begin(mixer, memory, arguments)
    rows = query.split(1, dim=1)
    return torch.cat([mixer.step(row, state, arguments["positions"]) for row in rows], dim=1)


def refused(run: Callable[[], object], sentence: str) -> None:
    """Raise AssertionError unless a call is refused with a sentence in which the given words are."""
    try:
        run()
    except UsageError as error:
        said = str(error)
    else:
        said = "it was not refused"
    assert sentence in said, f"expected a refusal with {sentence!r}: {said}"
