"""What a mixer remembers between decoding steps."""

import copy
from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from posnet_fairseq.mixers.bases.lineage import Lineage
from posnet_fairseq.ops.dtypes import dtype_name
from posnet_fairseq.shared.errors import UsageError

# Tokens by which the memory of growing rows is enlarged.
MORE_TOKENS = 8


class DecodingState:
    """The state of one mixer in step-by-step decoding; arguments as of :meth:`TokenMixer.init_state`.

    `batch_size` is None in an exported graph, where it is open. The first step projects the memory, later ones do
    without it.

    Attributes:
        mixer: the identity of the mixer whose state it is, None if it is not known.
        position: of the next token, from 0.
        sentences: S in cross-attention, None in self-attention.
        beam: hypotheses of each sentence, which follow one another and share a row of the memory; 1 in self-attention.
        rows: tensors with a row per hypothesis (self-attention) or per sentence (cross-attention).
        tables: weights by position, which all rows share.
        values: what mixers leave in place when hypotheses move: values of the last tokens, see
            :mod:`posnet_fairseq.ops.beam_backpointers`, or keys and values, see :class:`Lineage`; None in others.
        lineage: of the hypotheses.
        owns_lineage: whether :meth:`reorder` moves it, too; False if layers share it.
    """

    def __init__(
        self,
        batch_size: int | None,
        memory: Tensor | None = None,
        padding_mask: Tensor | None = None,
        memory_positions: Tensor | None = None,
        length_ratio: tuple[int, int] = (1, 1),
        mixer: int | None = None,
    ) -> None:
        self.mixer = mixer
        self.position = 0
        self.batch_size = batch_size
        self.memory = memory
        self.padding_mask = padding_mask
        self.memory_positions = memory_positions
        self.length_ratio = length_ratio
        self.sentences = None if memory is None else memory.size(0)
        self.beam = batch_size // self.sentences if self.sentences and batch_size else 1
        self.rows: dict[str, Tensor] = {}
        self.tables: dict[str, Tensor] = {}
        self.values: Tensor | None = None
        self.lineage, self.owns_lineage = Lineage(), True
        # The memory of rows, with room for more tokens, and that of rows before the last reordering, to write to next.
        self._room: dict[str, Tensor] = {}
        self._spare: dict[str, Tensor] = {}
        self._in_place: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies have: they may be those of a copy of the mixer."""
        return vars(self) | {"mixer": None}

    def __copy__(self) -> "DecodingState":
        """Return a whole copy: rows are overwritten, so that no two states may share them."""
        held = chain.from_iterable(of.values() if isinstance(of, dict) else [of] for of in vars(self).values())
        # Results of a graph can be cloned, but not copied deeply.
        clones = {id(x): x.clone() for x in held if isinstance(x, Tensor) and x.grad_fn is not None}
        return copy.deepcopy(self, clones)

    def shared_copy(self) -> "DecodingState":
        """Return a copy that shares all tensors, for :meth:`select`, which replaces them."""
        made = object.__new__(type(self))
        vars(made).update(self.__getstate__())
        return made

    @property
    def in_place(self) -> bool:
        """Whether rows are overwritten, decided at the first step: no gradient needs them, and no graph is traced."""
        if self._in_place is None:
            traced = torch.compiler.is_compiling() or isinstance(self.position, Tensor)
            self._in_place = not traced and not torch.is_grad_enabled()
        return self._in_place

    def append(self, name: str, new: Tensor) -> Tensor:
        """Return all tensors given under a name so far, (B, H, M, d); `new`, (B, H, 1, d), is the last."""
        if name not in self.rows:
            self._check_first()
        if not self.in_place:
            if name in self.rows:
                new = torch.cat([self.rows[name], new], dim=2)
            self.rows[name] = new
            return new
        old, room = self.rows.get(name), self._room.get(name)
        tokens = 0 if old is None else old.size(2)
        if room is None or room.size(2) <= tokens or not is_writable(room):
            room = new.new_empty(*new.shape[:2], tokens + MORE_TOKENS, new.size(3))
            if old is not None:
                room[:, :, :tokens] = old
            self._room[name] = room
        room[:, :, tokens] = new[:, :, 0]
        self.rows[name] = room[:, :, : tokens + 1]
        return self.rows[name]

    def share(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the queries of the hypotheses of each sentence, and all keys and values that these descend from.

        Args:
            query, key, value: of a step's tokens, (R, H, 1, d) each.

        Returns:
            (S, H, W, d), (S, H, slots, d), (S, H, slots, d), and energies that hide slots, (S, 1, W, slots).
        """
        if self.values is None:
            self._check_first()
        self.values = self.lineage.append(self.values, key, value, self.position)
        hidden = self.lineage.hidden
        assert hidden is not None
        keys, values = self.values[..., : hidden.size(2), :]
        queries = query.view(*hidden.shape[:2], *query.shape[1:]).squeeze(3).transpose(1, 2)
        return queries, keys, values, hidden[:, None]

    def get_or_create(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return the tensor with a name, made at the first step."""
        if name not in self.rows:
            self._check_first()
            self.rows[name] = make()
        return self.rows[name]

    def _check_first(self) -> None:
        if isinstance(self.position, int) and self.position:
            raise UsageError(
                f"need_weights or dropout at position {self.position}: earlier steps kept what other steps need. Ask "
                "for weights in all steps of a state, or in none, and leave dropout as it is."
            )

    def table(self, name: str, rows: int, make: Callable[[], Tensor]) -> Tensor:
        """Return a table over positions, (H, rows or more, M), made again only when it has fewer rows."""
        if name not in self.tables or self.tables[name].size(1) < rows:
            self.tables[name] = make()
        return self.tables[name]

    def reorder(self, order: Tensor) -> None:
        """Continue with other hypotheses, as beam search does.

        Args:
            order: (R,) numbers of the hypotheses to continue with; hypotheses of one sentence follow one another.

        Raises:
            UsageError: `order` is not of that type, or, on CPUs, has other numbers.
        """
        if not isinstance(order, Tensor) or order.dim() != 1 or order.dtype not in (torch.int64, torch.int32):
            raise UsageError("order: give the numbers of hypotheses as a tensor of whole numbers, (R,).")
        try:
            if self.sentences is not None:
                return self.select(*order_of_sentences(order, self.sentences, self.beam))
            if not self.rows and self.batch_size is not None:
                torch.empty(self.batch_size, device=order.device).index_select(0, order)
            for name in self.rows:
                self._reorder_row(name, order)
            if self.owns_lineage:
                self.lineage.reorder(order)
            self.batch_size = order.size(0)
        except IndexError as error:  # of CPUs; to look first would make GPUs wait
            has = f"this state has {self.batch_size} hypotheses, numbered from 0"
            raise UsageError(f"order {order.tolist()!s:.80}: {has}. Give numbers of these.") from error

    def _reorder_row(self, name: str, order: Tensor) -> None:
        rows, room = self.rows[name], self._room.pop(name, None)
        if not self.in_place:
            self.rows[name] = rows.index_select(0, order)
            return
        whole = rows if room is None else room  # with its room, rows lie in memory without gaps
        spare = self._spare.get(name)
        fits = spare is not None and spare.shape[1:] == whole.shape[1:] and spare.size(0) >= order.size(0)
        if spare is None or not fits or not is_writable(spare):
            spare = whole.new_empty(order.size(0), *whole.shape[1:])
        spare = torch.index_select(whole, 0, order, out=spare[: order.size(0)])
        self._spare[name] = whole
        self.rows[name] = spare if room is None else spare[:, :, : rows.size(2)]
        if room is not None:
            self._room[name] = spare

    def __repr__(self) -> str:
        """Return position and sizes, without the numbers."""
        of = "" if self.sentences is None else f" of {self.sentences} sentences"
        stored = (self.memory, self.values, *self.rows.values())
        dtype = next((f", {dtype_name(x)}" for x in stored if x is not None and x.is_floating_point()), "")
        return f"DecodingState(position {self.position}, {self.batch_size} hypotheses{of}{dtype})"

    def select(self, order: Tensor | None, beam: int) -> None:
        """Reorder the sentences of cross-attention; arguments are what :func:`order_of_sentences` returns."""
        assert self.sentences is not None
        if order is not None:
            self.rows = {name: tensor.index_select(0, order) for name, tensor in self.rows.items()}
            if self.memory is not None:
                self.memory = self.memory.index_select(0, order)
            if self.padding_mask is not None:
                self.padding_mask = self.padding_mask.index_select(0, order)
            self.sentences = order.size(0)
        self.beam = beam
        self.batch_size = self.sentences * beam


def is_writable(tensor: Tensor) -> bool:
    """Return whether a tensor may be overwritten: one of inference mode only in that mode."""
    return torch.is_inference_mode_enabled() or not tensor.is_inference()


def order_of_sentences(order: Tensor, sentences: int, beam: int) -> tuple[Tensor | None, int]:
    """Return the order of sentences, (S,), that an order of hypotheses, (R,), means, None if they stay; and the beam.

    `sentences` and `beam` are those before. The new beam is 1 if the hypotheses of a sentence no longer follow one
    another. Comparing makes a GPU wait, so this is called once for all layers.
    """
    count, unmoved = order.size(0), torch.arange(sentences, device=order.device)
    if beam == 1 and count > sentences > 0 and count % sentences == 0:
        times = count // sentences
        if torch.equal(order, unmoved.repeat_interleave(times)):  # the beginning of a search
            return None, times
    of_hypotheses = torch.div(order, beam, rounding_mode="floor")
    if count % beam:
        return of_hypotheses, 1
    by_sentence = of_hypotheses[::beam]
    together, stay = of_hypotheses.view(-1, beam).eq(by_sentence[:, None]).all(), False
    if len(by_sentence) == sentences:
        # Both answers in one wait.
        together, stay = torch.stack([together, by_sentence.eq(unmoved).all()]).tolist()
    if not together:
        return of_hypotheses, 1
    return (None if stay else by_sentence), beam


def table_rows(position: int, max_positions: int) -> int:
    """Return how many queries a table shared by decoding steps is made for at the step of a position, at most L.

    Doubling keeps the total cost of making tables again below that of the last one.
    """
    return min(max_positions, max(16, 1 << (position + 1).bit_length()))
