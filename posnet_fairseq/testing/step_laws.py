"""What must hold for decoding step by step. Each law takes a mixer, in float64, and raises AssertionError."""

import torch

from posnet_fairseq.mixers.bases.positions import Positions
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.testing.calls import CLOSE, begin, call, steps


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


def the_state_has_the_size_that_is_declared(mixer: TokenMixer) -> None:
    """If a mixer declares ``constant_state``, its state has the same size in bytes after 5 steps and after the last."""
    if mixer.place == "encoder" or not mixer.constant_state:
        return
    _, memory, arguments = call(mixer)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            state, sizes = begin(mixer, memory, arguments), []
            for count in (5, mixer.max_positions - 5):
                query = torch.randn(2, count, mixer.embed_dim, dtype=torch.float64)
                vectors = torch.randn(2 * mixer.max_positions, mixer.embed_dim, dtype=torch.float64)
                steps(mixer, query, memory, arguments | {"positions": vectors}, state)
                kept = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in state.rows.values()}
                sizes.append(sum(kept.values()))
            assert sizes[0] == sizes[1], f"the state takes {sizes[0]} bytes after 5 steps, {sizes[1]} after the last"


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
