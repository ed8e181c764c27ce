"""What must hold for a full pass of every token mixer. Laws as in :mod:`posnet_fairseq.testing.mixer_laws`.

They come first, in an order in which the first that is broken tells the most.
"""

import torch

from posnet_fairseq.mixers.bases.banded import BandedMixer
from posnet_fairseq.mixers.bases.position_based import PositionBasedMixer
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.testing.calls import CLOSE, call, tokens


def energies_have_tables_of_their_shape(mixer: TokenMixer) -> None:
    """What a position-based mixer stores has the shape that :meth:`Energy.table` says. Without it, other laws fail."""
    if not isinstance(mixer, PositionBasedMixer) or type(mixer).energy is not PositionBasedMixer.energy:
        return
    assert len(mixer.energies), "there is no energy: append an Energy to self.energies, or override energy()"
    queries, keys = 7, 9
    _, _, arguments = call(mixer)
    vectors = arguments["positions"], arguments["memory_positions" if mixer.place == "cross" else "positions"]
    for energy in mixer.energies:
        what = type(energy).__name__
        assert energy.reach is not None or not isinstance(mixer, BandedMixer), f"{what}.reach is None: set it to R"
        shape = tuple(energy.table(torch.arange(queries), keys, *vectors).shape)
        columns = keys if energy.reach is None else energy.buckets.count
        rows = {queries} if energy.reach is None else {1, queries}
        assert shape in {(mixer.num_heads, row, columns) for row in rows}, (
            f"{what}.table has the shape {shape} for {queries} queries and {keys} keys: it must be (H, N, M), or with "
            f"a reach (H, N or 1, 2R + 1), here ({mixer.num_heads}, {' or '.join(map(str, sorted(rows)))}, {columns})"
        )


def every_length_works(mixer: TokenMixer) -> None:
    """The output is finite and has the shape of the query, for 1 token and for `max_positions` tokens."""
    for length in (1, mixer.max_positions):
        query = tokens(mixer, length)
        vectors = torch.randn(2, 2 * length, mixer.embed_dim, dtype=torch.float64)
        result = mixer(query, query, positions=vectors[0], memory_positions=vectors[1])
        shapes = tuple(result.shape), tuple(query.shape)
        assert shapes[0] == shapes[1], f"the result has the shape {shapes[0]}: it must be {shapes[1]}"
        assert result.isfinite().all()


def the_length_ratio_is_read_as_declared(mixer: TokenMixer) -> None:
    """Cross-attention depends on γ exactly if `reads_length_ratio` says so: models do not pass it to others."""
    if mixer.place != "cross":
        return
    query, memory, arguments = call(mixer)
    results = [mixer(query, memory, **arguments | {"length_ratio": ratio}) for ratio in ((1, 1), (5, 4))]
    declared = mixer.reads_length_ratio
    assert torch.equal(*results) != declared, f"reads_length_ratio is {declared}, and results say otherwise"


def vectors_are_read_as_declared(mixer: TokenMixer) -> None:
    """Without `reads_positions` and `reads_memory_positions`, models pass no vectors of positions."""
    query, memory, arguments = call(mixer)
    kinds = {"positions": mixer.reads_positions, "memory_positions": mixer.reads_memory_positions}
    result = mixer(query, memory, **arguments)
    for kind in [kind for kind, declared in kinds.items() if not declared]:
        try:
            without = mixer(query, memory, **arguments | {kind: None})
        except Exception as error:
            raise AssertionError(f"reads_{kind} is False, and without {kind} it fails: {error}") from error
        assert torch.equal(without, result), f"reads_{kind} is False, and results depend on {kind}"


def hidden_pairs_are_not_mixed(mixer: TokenMixer) -> None:
    """With `attn_mask`, if a mixer takes it: results of queries from which no token is hidden do not change."""
    if not mixer.hides_pairs:
        return
    query, memory, arguments = call(mixer)
    mask = torch.zeros(query.size(1), memory.size(1), dtype=torch.bool)
    mask[2, 1] = True
    mixed, masked = (mixer(query, memory, **arguments, attn_mask=hidden) for hidden in (None, mask))
    changed = [n for n in range(query.size(1)) if not torch.allclose(mixed[:, n], masked[:, n], **CLOSE)]
    assert changed == [2], (
        f"attn_mask hides a token from query 2, and results of these change: {changed}. Heed `hidden`, or set "
        "hides_pairs = False"
    )


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


def asking_for_weights_changes_nothing(mixer: TokenMixer) -> None:
    """The result is the same with the mixing weights and without."""
    query, memory, arguments = call(mixer)
    result, weights = mixer(query, memory, **arguments, need_weights=True)
    plain = mixer(query, memory, **arguments)
    real = ~arguments["padding_mask"] if mixer.place == "encoder" else ...  # nobody reads what padded queries get
    torch.testing.assert_close(result[real], plain[real], **CLOSE)
    assert weights is None or weights.shape[-2:] == (query.size(1), memory.size(1))
