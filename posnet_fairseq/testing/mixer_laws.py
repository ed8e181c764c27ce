"""What must hold for every token mixer by itself. Each law takes a mixer, in float64, and raises AssertionError."""

import copy
import dataclasses
import functools
import io
import pickle

import torch
from torch import Tensor

from posnet_fairseq.inference.stored_energies import store
from posnet_fairseq.mixers.bases.context import MixingContext
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.positions import Positions
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.ops.dropout import Dropout
from posnet_fairseq.testing.calls import CLOSE, Arguments, begin, call, refused, steps, tokens


def saving_and_loading_change_nothing(mixer: TokenMixer) -> None:
    """Weights loaded into another mixer of the same settings, also one without numbers, give the same result."""
    query, memory, arguments = call(mixer)
    twin = copy.deepcopy(mixer)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(torch.randn_like(parameter))
    expected = mixer(query, memory, **arguments)
    for empty in (twin, copy.deepcopy(mixer).to("meta").to_empty(device="cpu")):
        empty.load_state_dict(_saved_and_loaded(mixer.state_dict()))
        torch.testing.assert_close(empty(query, memory, **arguments), expected, rtol=0, atol=0)


def storing_energies_changes_nothing(mixer: TokenMixer) -> None:
    """Tables in the place of energies of positions give the same result."""
    if not isinstance(mixer, PositionBasedMixer) or not len(mixer.energies):
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


def nothing_gives_nothing(mixer: TokenMixer) -> None:
    """No sentence, or none of a token: results and weights of these sizes, gradients of zeros, steps that go on."""
    query, memory, arguments = call(mixer)
    arguments |= {"padding_mask": None}
    for sentences, length in ((0, 3), (2, 0), (0, 0)):
        none = query[:sentences, :length]
        mask = torch.zeros((sentences, memory.size(1) if mixer.place == "cross" else length), dtype=torch.bool)
        for padding_mask in (None, mask):
            given = none, memory[:sentences] if mixer.place == "cross" else None
            result, weights = mixer(*given, **arguments | {"padding_mask": padding_mask}, need_weights=True)
            assert result.shape == none.shape
            assert weights is None or (weights.size(0) <= 1 or weights.size(0) == sentences)
            assert weights is None or weights.shape[2:] == (length, mask.size(1))
            used = [p for p in mixer.parameters() if p.requires_grad]
            if not used:
                continue
            gradients = torch.autograd.grad(result.sum(), used, allow_unused=True)
            assert any(gradient is not None for gradient in gradients)
            assert not any(gradient.any() for gradient in gradients if gradient is not None)
    if mixer.place == "encoder":
        return
    for gradients_too in (True, False):
        with torch.set_grad_enabled(gradients_too):
            begun = begin(mixer, memory, arguments, batch_size=4)
            mixer.step(query[:, :1].repeat(2, 1, 1), begun, arguments["positions"])
            begun.reorder(torch.empty(0, dtype=torch.int64))
            for state in (begun, begin(mixer, memory[:0], arguments, batch_size=0)):
                for _ in range(3):
                    assert mixer.step(query[:0, :1], state, arguments["positions"]).shape == (0, 1, mixer.embed_dim)
                    state.reorder(torch.empty(0, dtype=torch.int64))


def tokens_without_positions_are_refused(mixer: TokenMixer) -> None:
    """More than L, in a full pass and in steps; of memory, more than learned or stored. Any other memory is exact."""
    length, cross = mixer.max_positions, mixer.place == "cross"
    query, vectors = tokens(mixer, length + 2), torch.randn(2, 4 * length, mixer.embed_dim, dtype=torch.float64)
    context: Arguments = {"positions": vectors[0], "memory_positions": vectors[1]}
    unpadded: Arguments = context | {"padding_mask": None, "length_ratio": (1, 1)}
    short, said = query[:, :length], f"this mixer was built for {length} positions"
    own = Positions("learned", length, mixer.embed_dim, 0.0, "max_positions", for_mixers=True).double()
    mask = (torch.arange(length + 2) >= length).expand(2, -1)
    for mixer.own_positions, mixer.own_memory_positions, given in ((None, None, context), (own, own, {})):
        refused(functools.partial(mixer, query, query, **given), said)
        padded = mixer(short if cross else query, query, **given, padding_mask=mask)
        torch.testing.assert_close(padded[:, :length], mixer(short, short, **given), **CLOSE)
    mixer.own_positions = mixer.own_memory_positions = None
    if mixer.place != "encoder":
        state = begin(mixer, query, unpadded)
        steps(mixer, short, query, unpadded, state)
        refused(lambda: mixer.step(query[:, -1:], state, vectors[0]), said)
    if cross:
        longer = copy.deepcopy(mixer)
        longer.settings = dataclasses.replace(longer.settings, max_positions=2 * length)
        torch.testing.assert_close(mixer(short, query, **context), longer(short, query, **context), **CLOSE)
    if cross and mixer.reads_memory_positions:
        refused(lambda: mixer(short, short, **context, length_ratio=(5, 1)), "positions: give the vectors of")
        mixer.own_positions = mixer.own_memory_positions = own
        refused(lambda: mixer(short, short, length_ratio=(5, 1)), f"this mixer learns {length}")
        refused(lambda: mixer(short, query), f"memory tokens: {said}")
        refused(lambda: mixer.init_state(2, query), f"memory tokens: {said}")
    if isinstance(mixer, PositionBasedMixer) and len(mixer.energies):
        store(mixer, 4, 4, MixingContext(*vectors))
        refused(lambda: mixer(query, query), said if mixer.max_positions == length else "built for 4 positions")
        if cross and mixer.max_memory() is not None:
            refused(lambda: mixer(query[:, :4], query), "memory tokens: this mixer was built for 4 positions")


def retained_dropout_is_that_of_training(mixer: TokenMixer) -> None:
    """With fairseq's --retain-dropout, evaluation drops what training dropped."""
    query, memory, arguments = call(mixer)
    mixer.dropout.p = 0.5
    for stepping in (False,) if mixer.place == "encoder" else (False, True):

        def output(seed: int, stepping: bool = stepping) -> Tensor:
            torch.manual_seed(seed)
            return steps(mixer, query, memory, arguments) if stepping else mixer(query, memory, **arguments)

        mixer.train()
        trained = output(1)
        mixer.eval()
        plain = output(1)
        torch.testing.assert_close(output(2), plain, **CLOSE)
        for module in mixer.modules():
            if isinstance(module, Dropout):
                module.make_generation_fast_(retain_dropout=True)
        torch.testing.assert_close(output(1), trained, **CLOSE)
        if mixer.drops_weights:
            says = "no weights are dropped: drop them with drop_probability, or set drops_weights = False"
            assert not torch.allclose(output(1), plain), says
            assert not torch.allclose(output(1), output(2)), says
        mixer.dropout.retained = False


def hypotheses_drop_weights_of_their_own(mixer: TokenMixer) -> None:
    """With dropout retained, hypotheses of a sentence drop different weights, as sentences of a batch do."""
    if mixer.place != "cross" or not mixer.drops_weights:
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
            state = begin(mixer, memory, context)
            refused(functools.partial(twin.step, query[:, :1], state, context["positions"]), "state of another mixer")
            both = [(mixer, state), copy.deepcopy((mixer, state))]
            first, second = (each.step(query[:, :1], its_state, context["positions"]) for each, its_state in both)
            torch.testing.assert_close(first, second, rtol=0, atol=0)
            with torch.no_grad():
                state = begin(mixer, memory, context)
                steps(mixer, query[:, :2], memory, context, state)
                fork = copy.copy(state)
                for its_state in (state, fork):
                    found = mixer.step(query[:, 2:3], its_state, context["positions"])
                    mixer.step(query[:, :1], its_state, context["positions"])
                    torch.testing.assert_close(found, expected[:, 2:3], **CLOSE)


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
