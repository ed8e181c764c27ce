"""Subwords learned from the training set: BPE merges of subword-nmt, or sentencepiece."""

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import regex
import sentencepiece
from subword_nmt.learn_bpe import learn_bpe

from posnet_data_prep.dataset import Recipe
from posnet_data_prep.pipeline.lines import Columns, Rows, map_lines
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.text.subwords import SentencePieces

MODEL = "sentencepiece.model"
# subword-nmt takes 1.3 kB for each different word, and time. The rarest words of a larger text are left out: words that
# occur once or twice among a hundred million hardly influence any merge.
MOST_WORDS = 1_500_000
# sentencepiece holds its text in memory. It is given every second, third ... line of a longer text.
MOST_LINES = 4_000_000
BYTES = 256  # pieces of a lossless model
# Of all letters of the text those that get a piece, from the most frequent on: as sentencepiece advises. The rarest are
# bytes, so that a model has seen some in training.
COVERAGE = 0.9995
# White space, which ends a symbol in a dictionary, control characters, and the characters that sentencepiece reserves.
_NOT_IN_PIECES = regex.compile(r"[^\S ]|[\p{Cc}▁▅]")


def subword_files(languages: Sequence[str], recipe: Recipe) -> dict[str, str]:
    """Return the name of the file of subwords of each language."""
    if recipe.subwords == "sentencepiece":
        return dict.fromkeys(languages, MODEL)
    if len(recipe.merges) == 1:
        return dict.fromkeys(languages, "codes.bpe")
    return {language: f"codes.{language}.bpe" for language in languages}


def count_words(destinations: Path, files: Sequence[Path], processes: int, bar: Bar) -> tuple[dict[str, int], int]:
    """Count the words, between spaces, of lines that another file assigns to ``train``.

    Returned are counts in the order of first appearance, or of the most frequent words, and the number of all words.
    """

    def count(rows: Rows) -> tuple[Columns, Counter[str]]:
        return [], Counter(word for name, line in rows if name == "train" for word in line.split(" ") if word)

    words: Counter[str] = Counter()
    for path in files:
        words.update(map_lines(count, [destinations, path], [], processes, bar))
    return words if len(words) <= MOST_WORDS else dict(words.most_common(MOST_WORDS)), len(words)


def learn_merges(words: Mapping[str, int], merges: int, path: Path, bar: Bar) -> int:
    """Write BPE merges learned from counts of words, as ``subword-nmt learn-bpe`` does; return their number."""
    with open(path, "w", encoding="utf-8") as file, contextlib.redirect_stderr(io.StringIO()):  # its own bar

        def write(line: str) -> None:
            file.write(line)
            bar.advance(not line.startswith("#version"))

        if any(len(word) > 1 for word in words):
            lines = (f"{word} {count}" for word, count in words.items())
            learn_bpe(lines, SimpleNamespace(write=write), merges, is_dict=True)
    if not bar.done:
        raise UsageError(
            "no subwords can be learned: no two letters stand together twice. Give more text, or check --min-length "
            "and --max-length."
        )
    return int(bar.done)


def learn_pieces(
    destinations: Path,
    files: Sequence[Path],
    pieces: int,
    path: Path,
    lines: int,
    lossless: bool = False,
    symbols: Sequence[str] = (),
) -> dict[str, int]:
    """Learn a sentencepiece BPE model from the `lines` lines that another file assigns to ``train``.

    A lossless one, see :class:`posnet_fairseq.text.subwords.SentencePieces`, has a piece for each byte besides, and
    every model one for each of the `symbols`.
    """
    lines *= len(files)
    step = max(1, -(-lines // MOST_LINES))
    texts = _training_lines(destinations, files)
    options: dict[str, Any] = {"vocab_size": pieces + len(symbols), "character_coverage": 1.0}
    if lossless:
        texts = (_NOT_IN_PIECES.sub(" ", line) for line in texts)
        options = {
            "vocab_size": pieces + BYTES + len(symbols),
            "character_coverage": COVERAGE,
            "byte_fallback": True,
            "remove_extra_whitespaces": False,
        }
    with open(path, "wb") as writer:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=islice(texts, 0, None, step),
                model_writer=writer,
                model_type="bpe",
                hard_vocab_limit=False,
                max_sentence_length=2**30,  # longer lines would be left out silently
                normalization_rule_name="identity",  # so that decoding restores the text
                user_defined_symbols=list(symbols),
                minloglevel=2,
                **options,
            )
        except RuntimeError as error:
            if few := re.search(r"smaller than required_chars\. (\d+) vs (\d+)", str(error)):
                least = pieces + int(few[2]) - int(few[1])
                raise UsageError(f"--pieces {pieces}: this text has more characters. Give {least} or more.") from error
            reason = str(error).split("] ")[-1] or "It is empty."
            raise UsageError(f"--pieces {pieces}: they cannot be learned from this text. {reason}") from error
    learned = len(SentencePieces(path).pieces) - BYTES * lossless - len(symbols)
    return {"pieces": learned, "lines": -(-lines // step)}


def _training_lines(destinations: Path, files: Sequence[Path]) -> Iterator[str]:
    for path in files:
        with open(destinations) as names, open(path, encoding="utf-8", newline="\n") as lines:
            yield from (line.removesuffix("\n") for name, line in zip(names, lines, strict=True) if name == "train\n")
