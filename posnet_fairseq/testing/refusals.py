"""Calls that every token mixer must refuse. Laws as in :mod:`posnet_fairseq.testing.mixer_laws`."""

import functools
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.testing.calls import CLOSE, begin, call, refused, steps


def a_prompt_is_refused(mixer: TokenMixer) -> None:
    """Several tokens in one step, before the first one and after some."""
    if mixer.place == "encoder":
        return
    query, memory, context = call(mixer)
    for before in (0, 2):
        state = begin(mixer, memory, context)
        if before:
            steps(mixer, query[:, :before], memory, context, state)
        prompt = functools.partial(mixer.step, query[:, before:], state)
        refused(prompt, "takes one new token of every hypothesis")
    refused(
        lambda: mixer.step(query[:1, :1], begin(mixer, memory, context)), f"every hypothesis, (2, 1, {mixer.embed_dim})"
    )


def another_type_is_refused(mixer: TokenMixer) -> None:
    """Tokens that are read, in a full pass and in a step, after which the state is not to be used."""
    if not any(True for _ in mixer.parameters()):  # nothing has a type
        return
    query, memory, context = call(mixer)
    said = "of float32: the parameters of this mixer are float64. Convert either, as with"
    if mixer.place == "cross":
        refused(lambda: mixer(query, memory.float(), **context), f"memory {said} memory.to(torch.float64)")
        if not mixer.reads_queries:
            return
    given = query.float(), memory if mixer.place == "cross" else None
    refused(lambda: mixer(*given, **context), f"query {said} query.to(torch.float64)")
    if mixer.place != "encoder":
        state = begin(mixer, memory, context)
        refused(lambda: mixer.step(query[:, :1].half(), state, context["positions"]), "query of float16")


def an_order_of_other_hypotheses_is_refused(mixer: TokenMixer) -> None:
    """Before the first step and after some, which go on as if nothing had been asked."""
    if mixer.place == "encoder":
        return
    query, memory, context = call(mixer)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            expected, state = steps(mixer, query, memory, context), begin(mixer, memory, context)
            for token in range(3):
                for number in (-1, 2):
                    reorder = functools.partial(state.reorder, torch.tensor([0, number]))
                    refused(reorder, "this state has 2 hypotheses, numbered from 0")
                found = mixer.step(query[:, token : token + 1], state, context["positions"])
                torch.testing.assert_close(found, expected[:, token : token + 1], **CLOSE)


def padding_before_tokens_is_refused(mixer: TokenMixer) -> None:
    """Left padding."""
    query, memory, context = call(mixer)
    keys = memory.size(1)
    left = torch.arange(keys) < torch.tensor([[0], [keys - 3]])
    refused(lambda: mixer(query, memory, **context | {"padding_mask": left}), "padding before tokens")


def arguments_that_do_not_fit_are_refused(mixer: TokenMixer) -> None:
    """Arguments that broadcasting would silently accept."""
    query, memory, context = call(mixer)
    mask = torch.zeros(memory.shape[:2], dtype=torch.bool)

    def call_refused(sentence: str, query: Tensor = query, memory: Tensor = memory, **changes: Any) -> None:
        refused(lambda: mixer(query, memory, **context | {"padding_mask": None} | changes), sentence)

    for wrong in (mask[:1], mask[:, :1], mask.byte()):
        call_refused("padding_mask", padding_mask=wrong)
    of_memory = ("memory_positions",) if mixer.place == "cross" else ()
    for name in ("positions", *of_memory):
        for vectors in (query[..., 0], query):
            call_refused(f"{name} of the shape", **{name: vectors})
    for ratio in (1.5, (0, 1), (1, 0), (1,)):
        call_refused("give source tokens and target tokens", length_ratio=ratio)
    if mixer.place != "cross":
        call_refused("self-attention mixes the queries themselves", memory=query.clone())
        call_refused("give source tokens and target tokens", length_ratio=(3, 1))
    else:
        for others in (memory[:1], torch.cat([memory, memory], dim=2), memory[:, :0]):
            call_refused("give tokens of sentences", memory=others)
        refused(lambda: mixer(query), "memory is missing")
    if mixer.reads_positions:
        for positions in (None, context["positions"][:1]):
            call_refused("positions", positions=positions)
    if mixer.place == "cross" and mixer.reads_memory_positions:
        for positions in (None, context["positions"][:1]):
            call_refused("memory_positions", memory_positions=positions)
