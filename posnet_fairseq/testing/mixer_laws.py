"""What must hold for every token mixer by itself. Each law takes a mixer, in float64, and raises AssertionError."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from posnet_fairseq.inference.precompute import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.decoding_state import DecodingState
from posnet_fairseq.mixers.bases.dropout import Dropout
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.positions import Positions
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer

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


def ways(mixer: TokenMixer) -> list[Callable[[Tensor, Tensor, Arguments], Tensor]]:
    """How the mixer can be called: at once, and step by step."""

    def at_once(query: Tensor, memory: Tensor, arguments: Arguments) -> Tensor:
        return mixer(query, memory, **arguments)

    def in_steps(query: Tensor, memory: Tensor, arguments: Arguments) -> Tensor:
        return steps(mixer, query, memory, arguments)

    return [at_once] if mixer.place == "encoder" else [at_once, in_steps]


def steps_equal_the_full_pass(mixer: TokenMixer) -> None:
    """Also when hypotheses change places, and when a sentence of cross-attention has several."""
    if mixer.place == "encoder":
        return
    for gradients in (True, False):  # without them states are overwritten
        with torch.set_grad_enabled(gradients):
            _steps_equal_the_full_pass(mixer)


def _steps_equal_the_full_pass(mixer: TokenMixer) -> None:
    query, memory, arguments = call(mixer)
    expected = mixer(query, memory, **arguments)
    torch.testing.assert_close(steps(mixer, query, memory, arguments), expected, **CLOSE)
    order = torch.tensor([1, 1, 0])
    state = begin(mixer, memory, arguments)
    steps(mixer, query[:, :3], memory, arguments, state)
    state.reorder(order)
    rest = steps(mixer, query[order][:, 3:], memory, arguments, state)
    torch.testing.assert_close(rest, expected[order][:, 3:], **CLOSE)
    if mixer.place == "cross":
        several = query.repeat_interleave(3, dim=0) + torch.randn(6, 1, mixer.embed_dim, dtype=query.dtype)
        wide = arguments | {"padding_mask": arguments["padding_mask"].repeat_interleave(3, dim=0)}
        expected = mixer(several, memory.repeat_interleave(3, dim=0), **wide)
        state = begin(mixer, memory, arguments, batch_size=6)
        torch.testing.assert_close(steps(mixer, several, memory, arguments, state), expected, **CLOSE)


def hypotheses_that_move_keep_their_past(mixer: TokenMixer) -> None:
    """Beam search moves hypotheses at every step; their number grows and shrinks."""
    if not mixer.causal:
        return
    last = mixer.max_positions - 1
    vectors = torch.randn(2 * mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            state, past = mixer.init_state(2), torch.empty(2, 0, mixer.embed_dim, dtype=torch.float64)
            for position in range(mixer.max_positions):
                rows = 2 if position == 0 else 6 if position < last // 2 else 3
                if position:
                    order = torch.randint(len(past), (rows,))
                    state.reorder(order)
                    past = past[order]
                new = torch.randn(rows, 1, mixer.embed_dim, dtype=torch.float64)
                past = torch.cat([past, new], dim=1)
                found = mixer.step(new, state, vectors)
                if position in (1, 2, last // 2, last):
                    torch.testing.assert_close(found, mixer(past, positions=vectors)[:, -1:], **CLOSE)


def steps_equal_the_full_pass_to_the_last_position(mixer: TokenMixer) -> None:
    """Beyond clip distances, and where tables that the steps share are made again."""
    if mixer.place == "encoder":
        return
    _, memory, arguments = call(mixer)
    query = torch.randn(2, mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
    vectors = torch.randn(2, 2 * mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
    arguments |= {"positions": vectors[0], "memory_positions": vectors[1]}
    with torch.no_grad():
        full = mixer(query, memory if mixer.place == "cross" else None, **arguments)
        torch.testing.assert_close(steps(mixer, query, memory, arguments), full, **CLOSE)


def positions_of_its_own_serve_both_ways(mixer: TokenMixer) -> None:
    """A mixer that owns its position vectors: a full pass and steps agree."""
    if not (mixer.reads_positions or mixer.reads_memory_positions):
        return
    width, length = mixer.embed_dim, mixer.max_positions
    mixer.own_positions = Positions("learned", length, width, 0.0, "max_positions", for_mixers=True).double()
    mixer.own_memory_positions = Positions("sinusoidal", length, width, 0.0, "max_positions", for_mixers=True).double()
    query, memory, arguments = call(mixer)
    arguments |= {"positions": None, "memory_positions": None}
    full = mixer(query, memory, **arguments)
    assert full.isfinite().all()
    if mixer.place != "encoder":
        torch.testing.assert_close(steps(mixer, query, memory, arguments), full, **CLOSE)


def padding_changes_nothing(mixer: TokenMixer) -> None:
    """The result for a padded sentence equals that for the sentence by itself."""
    if mixer.place == "decoder":
        return
    query, memory, arguments = call(mixer)
    keys, together = 3, mixer(query, memory, **arguments)
    queries = query.size(1) if mixer.place == "cross" else keys
    real = memory[1:, :keys] if mixer.place == "cross" else None
    alone = mixer(query[1:, :queries], real, **arguments | {"padding_mask": None})
    torch.testing.assert_close(together[1:, :queries], alone, **CLOSE)


def the_future_changes_nothing(mixer: TokenMixer) -> None:
    """A later token changes no earlier result of a causal mixer, near or far."""
    if not mixer.causal:
        return
    query = torch.randn(2, mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
    vectors = torch.randn(2 * mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
    before = mixer(query, positions=vectors)
    for first in (1, 4, mixer.max_positions - 1):
        changed = torch.cat([query[:, :first], torch.randn_like(query[:, first:])], dim=1)
        torch.testing.assert_close(mixer(changed, positions=vectors)[:, :first], before[:, :first], rtol=0, atol=0)


def saving_and_loading_change_nothing(mixer: TokenMixer) -> None:
    """Weights loaded into another mixer of the same settings give the same result."""
    query, memory, arguments = call(mixer)
    twin = copy.deepcopy(mixer)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(torch.randn_like(parameter))
    twin.load_state_dict(_saved_and_loaded(mixer.state_dict()))
    expected = mixer(query, memory, **arguments)
    torch.testing.assert_close(twin(query, memory, **arguments), expected, rtol=0, atol=0)


def storing_energies_changes_nothing(mixer: TokenMixer) -> None:
    """Tables in the place of energies of positions give the same result."""
    if not isinstance(mixer, PositionBasedMixer):
        return
    query, memory, arguments = call(mixer)
    context = MixingContext(
        arguments["positions"], arguments["memory_positions"], length_ratio=arguments["length_ratio"]
    )
    with torch.no_grad():
        expected = mixer(query, memory, **arguments)
        store(mixer, query.size(1), memory.size(1), context)
        stored = mixer(query, memory, **arguments | {"positions": None, "memory_positions": None})
    torch.testing.assert_close(stored, expected, **CLOSE)


def half_precision_stays_finite(mixer: TokenMixer) -> None:
    """The result is finite in float16 and bfloat16, also for a sentence that is all padding."""
    for dtype in (torch.float16, torch.bfloat16):
        half = copy.deepcopy(mixer).to(dtype)
        query, memory, arguments = call(mixer)
        tokens_of_both = query.detach().to(dtype), memory.detach().to(dtype)
        query, memory = tokens_of_both if mixer.place == "cross" else tokens_of_both[:1] * 2
        arguments |= {name: arguments[name].detach().to(dtype) for name in ("positions", "memory_positions")}
        if arguments["padding_mask"] is not None:
            arguments["padding_mask"] = arguments["padding_mask"] | torch.tensor([[False], [True]])
        result = half(query, memory, **arguments)
        assert result.dtype == dtype
        assert result.isfinite().all(), f"not finite in {dtype}"


def every_length_works(mixer: TokenMixer) -> None:
    """Sentences of one token, and of as many as the mixer has positions: the result has their shape and is finite."""
    for length in (1, mixer.max_positions):
        query = tokens(mixer, length)
        vectors = torch.randn(2, 2 * length, mixer.embed_dim, dtype=torch.float64)
        result = mixer(query, query, positions=vectors[0], memory_positions=vectors[1])
        assert result.shape == query.shape
        assert result.isfinite().all()


def asking_for_weights_changes_nothing(mixer: TokenMixer) -> None:
    """The result is the same with the mixing weights and without."""
    query, memory, arguments = call(mixer)
    result, weights = mixer(query, memory, **arguments, need_weights=True)
    torch.testing.assert_close(result, mixer(query, memory, **arguments), **CLOSE)
    assert weights is None or weights.shape[-2:] == (query.size(1), memory.size(1))


def retained_dropout_is_that_of_training(mixer: TokenMixer) -> None:
    """With fairseq's --retain-dropout, evaluation drops what training dropped."""
    arguments = call(mixer)
    mixer.dropout.p = 0.5
    for run in ways(mixer):

        def output(seed: int, run: Any = run) -> Tensor:
            torch.manual_seed(seed)
            return run(*arguments)

        mixer.train()
        trained = output(1)
        mixer.eval()
        plain = output(1)
        torch.testing.assert_close(output(2), plain, **CLOSE)
        mixer.apply(lambda module: _retain(module))
        torch.testing.assert_close(output(1), trained, **CLOSE)
        if mixer.name != "fouriernet":  # which has no weights to drop
            assert not torch.allclose(output(1), plain)
            assert not torch.allclose(output(1), output(2))
        mixer.dropout.retained = False


def _retain(module: nn.Module) -> None:
    if isinstance(module, Dropout):
        module.make_generation_fast_(retain_dropout=True)


def hypotheses_drop_weights_of_their_own(mixer: TokenMixer) -> None:
    """With dropout retained, hypotheses of a sentence drop different weights, as sentences of a batch do."""
    if mixer.place != "cross":
        return
    mixer.dropout.p, mixer.dropout.retained = 0.5, True
    query, memory, context = call(mixer)
    one = query[:, :1].repeat_interleave(4, dim=0)
    output = mixer.step(one, begin(mixer, memory, context, batch_size=8), context["positions"])
    for sentence in output.flatten(1).split(4):
        assert len(sentence.unique(dim=0)) > 1


def arguments_and_states_are_left_alone(mixer: TokenMixer) -> None:
    """No tensor of the caller's, and none that an earlier step has put into the state, is changed in place."""
    query, memory, context = call(mixer)
    ours = [query, memory, context["positions"], context["memory_positions"], context["padding_mask"]]
    ours = [tensor for tensor in ours if tensor is not None]
    before = [tensor.detach().clone() for tensor in ours]
    output = mixer(query, memory, **context)
    output.sum().backward()
    kept = output.detach().clone()
    if mixer.place != "encoder":
        state = begin(mixer, memory, context)
        steps(mixer, query[:, :4], memory, context, state)
        rows = state.rows
        ours, before = [*ours, *rows.values()], [*before, *(tensor.detach().clone() for tensor in rows.values())]
        mixer.step(query[:, 4:5], state, context["positions"])
    torch.testing.assert_close([tensor.detach() for tensor in ours], before, rtol=0, atol=0)
    torch.testing.assert_close(output.detach(), kept, rtol=0, atol=0)


def a_copy_is_the_same_mixer_with_a_state_of_its_own(mixer: TokenMixer) -> None:
    """Layers of one decoder may be copies of each other."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    for twin in (copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):
        torch.testing.assert_close(twin(query, memory, **context), expected, rtol=0, atol=0)
        if mixer.place != "encoder":
            stacked = [steps(layer, query, memory, context) for layer in (mixer, twin)]
            torch.testing.assert_close(*stacked, rtol=0, atol=0)


def other_precisions_round_and_nothing_else(mixer: TokenMixer) -> None:
    """Saved in one precision and loaded in another; float32 is close to float64."""
    query, memory, context = call(mixer)
    expected = mixer(query, memory, **context)
    single = copy.deepcopy(mixer).float()
    single.load_state_dict(_saved_and_loaded(mixer.state_dict()))
    assert {p.dtype for p in single.parameters()} <= {torch.float32}
    context |= {name: context[name].float() for name in ("positions", "memory_positions")}
    output = single(query.float(), memory.float() if mixer.place == "cross" else None, **context)
    torch.testing.assert_close(output.double(), expected, rtol=1e-3, atol=1e-4)
    twin = copy.deepcopy(mixer)
    twin.load_state_dict(single.state_dict())
    assert {p.dtype for p in twin.parameters()} <= {torch.float64}
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(tensor, mixer.state_dict()[name], rtol=1e-6, atol=1e-6)


def _saved_and_loaded(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    file = io.BytesIO()
    torch.save(weights, file)
    file.seek(0)
    return torch.load(file, weights_only=True)
