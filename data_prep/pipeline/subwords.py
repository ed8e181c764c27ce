"""Subwords learnt from a text: BPE merges of subword-nmt, or sentencepiece."""

import contextlib
import io
from collections import Counter
from itertools import islice

import sentencepiece
from subword_nmt.learn_bpe import learn_bpe

from posnet_data_prep.pipeline.lines import map_lines
from posnet_fairseq.shared.errors import UsageError

# subword-nmt takes 1.3 kB for each different word, and time. Of a text with more of them the rarest are left out; what
# stands once or twice among a hundred million words has hardly a say in any merge.
MOST_WORDS = 1_500_000
# sentencepiece holds all of its text in memory. Of a longer one it is given every second, third ... line.
MOST_LINES = 4_000_000


def count_words(destinations, files, processes, bar):
    """How often each word between spaces stands in the training set.

    Args:
        destinations: file that says of each line whether it is for ``train``.
        files: texts.
        processes: how many work at once.
        bar: shows progress in lines.

    Returns:
        dict of the most frequent words, in the order of their first appearance or, if some are left out, of their
        frequency; and how many different ones there are.
    """

    def count(rows):
        return [], Counter(word for place, line in rows if place == "train" for word in line.split(" ") if word)

    words = Counter()
    for path in files:
        words.update(map_lines(count, [destinations, path], [], processes, bar))
    return words if len(words) <= MOST_WORDS else dict(words.most_common(MOST_WORDS)), len(words)


def learn_merges(words, merges, path, bar):
    """Learn BPE merges, as ``subword-nmt learn-bpe`` does.

    Args:
        words: dict from a word to its frequency.
        merges: how many.
        path: file of the merges.
        bar: shows progress in merges.

    Returns:
        The number of merges, which is lower if the text has not so many.

    Raises:
        UsageError: there is nothing to merge.
    """
    if not any(len(word) > 1 for word in words):
        raise UsageError("no words are left to learn subwords from. Check the text, and --min-length and --max-length.")
    with open(path, "w", encoding="utf-8") as file, contextlib.redirect_stderr(io.StringIO()):  # its own bar
        learn_bpe((f"{word} {count}" for word, count in words.items()), _Counting(file, bar), merges, is_dict=True)
    if not bar.done:
        raise UsageError("no subwords can be learnt: no two letters stand together twice. Give more text.")
    return bar.done


class _Counting:
    """A file that tells a bar of every line but the first, the version."""

    def __init__(self, file, bar):
        self._file, self._bar = file, bar

    def write(self, line):
        self._file.write(line)
        if not line.startswith("#version"):
            self._bar.advance(1)


def learn_pieces(destinations, files, pieces, path, lines):
    """Learn sentencepiece BPE from the training set.

    Args:
        destinations: file that says of each line whether it is for ``train``.
        files: texts.
        pieces: how many; fewer if the text has not so many.
        path: of the model.
        lines: how many of each file are.

    Returns:
        dict: the number of pieces and of lines they were learnt from.

    Raises:
        UsageError: the text has more different letters than that.
    """
    lines *= len(files)
    step = -(-lines // MOST_LINES)
    texts = (line for file in files for place, line in _rows(destinations, file) if place == "train")
    with open(path, "wb") as writer:
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=islice(texts, 0, None, step),
                model_writer=writer,
                model_type="bpe",
                vocab_size=pieces,
                hard_vocab_limit=False,
                max_sentence_length=2**30,  # it would leave out longer lines without a word
                character_coverage=1.0,
                normalization_rule_name="identity",  # what comes out is what went in
                minloglevel=2,
            )
        except RuntimeError as error:
            reason = str(error).split("] ")[-1] or "It is empty."
            raise UsageError(f"--pieces {pieces}: they cannot be learnt from this text. {reason}") from error
    learnt = sentencepiece.SentencePieceProcessor(model_file=str(path)).vocab_size()
    return {"pieces": learnt, "lines": -(-lines // step)}


def _rows(*paths):
    """Lines of our own files that belong together."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, encoding="utf-8", newline="\n")) for path in paths]
        for lines in zip(*files, strict=True):
            yield [line.removesuffix("\n") for line in lines]
