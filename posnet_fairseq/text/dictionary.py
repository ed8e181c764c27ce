"""Dictionaries: symbols and their ids, in the files ``dict.LANGUAGE.txt`` that fairseq-preprocess writes."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain_damaged_dictionary
from posnet_fairseq.shared.files import read_small, write_lines

if TYPE_CHECKING:
    import torch  # in a second: preparing data makes dictionaries, too

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the ids 0 to 3, as fairseq numbers them
_BOS, _PAD, _EOS, _UNK = range(len(SPECIAL))
_OVERWRITE = "#fairseq:overwrite"


def dictionary_file(language: str) -> str:
    """Return the name of the file of a language's dictionary; "" is that of a language model."""
    return f"dict.{language}.txt" if language else "dict.txt"


class Dictionary:
    """Symbols by id and ids by symbol; the first four are ``<s>``, ``<pad>``, ``</s>`` and ``<unk>``.

    Its methods are those of fairseq's dictionary, as far as models and search need them.
    """

    nspecial = len(SPECIAL)

    def __init__(self, symbols: Iterable[str] = ()) -> None:
        self.symbols: list[str] = []
        self.counts: list[int] = []
        self.indices: dict[str, int] = {}
        for symbol in (*SPECIAL, *symbols):
            self.add_symbol(symbol)

    def add_symbol(self, symbol: str, count: int = 1) -> int:
        """Append a symbol and return its id. A symbol that is there already is found under the new id from then on."""
        self.indices[symbol] = len(self.symbols)
        self.symbols.append(symbol)
        self.counts.append(count)
        return self.indices[symbol]

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the dictionary in a file of lines ``SYMBOL COUNT``, optionally followed by ``#fairseq:overwrite``."""
        dictionary, content = cls(), io.BytesIO(read_small(path))
        try:
            for line in io.TextIOWrapper(content, encoding="utf-8"):
                dictionary._add_line(line)
            if len(dictionary) == cls.nspecial:
                raise ValueError("it is empty")
        except ValueError as error:
            problem = "Incorrect encoding: it is not UTF-8" if isinstance(error, UnicodeError) else error
            raise UsageError(explain_damaged_dictionary(problem, path)) from error
        return dictionary

    def _add_line(self, line: str) -> None:
        line = line.rstrip()
        entry = line.removesuffix(f" {_OVERWRITE}")
        try:
            symbol, field = entry.rsplit(" ", 1)
            count = int(field)
        except ValueError:
            shape = "'<token> <cnt> [flags]'"
            raise ValueError(f'Incorrect dictionary format, expected {shape}: "{line}"') from None
        if symbol in self.indices and entry == line:
            raise ValueError(f"Duplicate word '{symbol}', which is not marked by {_OVERWRITE}")
        self.add_symbol(symbol, count)

    def save(self, path: str | Path) -> None:
        """Write the symbols, except the special ones, with their counts, as :meth:`load` reads them."""
        entries = zip(self.symbols[self.nspecial :], self.counts[self.nspecial :], strict=True)
        write_lines(path, (f"{symbol} {count}" for symbol, count in entries))

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, index: int) -> str:
        return self.symbols[index] if index < len(self.symbols) else SPECIAL[_UNK]

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.indices

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dictionary) and self.indices == other.indices

    __hash__ = None  # type: ignore[assignment]  # a dictionary can change

    def index(self, symbol: str) -> int:
        """Return the id of a symbol, that of ``<unk>`` if the dictionary does not have it."""
        return self.indices.get(symbol, _UNK)

    def bos(self) -> int:
        """Return the id of ``<s>``."""
        return _BOS

    def pad(self) -> int:
        """Return the id of ``<pad>``."""
        return _PAD

    def eos(self) -> int:
        """Return the id of ``</s>``."""
        return _EOS

    def unk(self) -> int:
        """Return the id of ``<unk>``."""
        return _UNK

    def ids_of(self, line: str) -> list[int]:
        """Return the ids of the tokens of a line of text, which spaces separate, and of ``</s>`` at the end.

        Tokens that are spelled like ``<s>``, ``<pad>`` and ``</s>`` are text, and unknown.
        """
        ids = [*map(self.index, line.split())]
        if ids and min(ids) < _UNK:
            ids = [max(index, _UNK) for index in ids]
        return [*ids, _EOS]

    def encode_line(self, line: str) -> "torch.Tensor":
        """Return (M,) ids as :meth:`ids_of`."""
        import torch

        return torch.tensor(self.ids_of(line))

    def string(self, tokens: "Iterable[int] | torch.Tensor") -> str:
        """Return symbols of (N,) token ids between spaces, without ``<s>``, ``<pad>`` and ``</s>``."""
        indices = tokens.tolist() if hasattr(tokens, "tolist") else tokens
        return " ".join(self[index] for index in indices if index not in (_BOS, _PAD, _EOS))


@dataclass(frozen=True)
class Vocabulary:
    """Languages ("" for a language model) and dictionaries of a model; a language model has one in both places."""

    source_lang: str
    target_lang: str
    source_dictionary: Dictionary
    target_dictionary: Dictionary

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        return self.source_lang, self.target_lang

    @property
    def dictionaries(self) -> tuple[Dictionary, Dictionary]:
        """The dictionaries of source and target."""
        return self.source_dictionary, self.target_dictionary
