"""What is odd about outputs: things that change scores, or that scores do not show."""

import functools
import re
import unicodedata
from collections import Counter

from posnet_eval.inputs.similarity import of_another_text
from posnet_eval.statistics.results import Remark
from posnet_fairseq.shared.files import is_blank

SHOWN = 10  # line numbers of a remark
OUTLIER = 3  # times longer or shorter than the reference
SHORT = 20  # characters that do not make a line an outlier
OFTEN = 3  # times that a word or phrase stands after itself
PHRASE = 4  # words of the longest phrase looked at
LETTERS = 3  # of a script, from which on a line is of it
COMMON = 0.02  # share of a reference's letters from which on a script belongs to the language

_SUBWORDS = re.compile(r"@@( |$)|▁|</?s>|<unk>")
_ENTITIES = re.compile(r"&(quot|apos|amp|lt|gt|#\d+|#x[0-9a-f]+);")
_REPEATED = re.compile(rf"(?<!\S)(\S+(?: \S+){{0,{PHRASE - 1}}}?)(?: \1){{{OFTEN - 1},}}(?!\S)")
_SPACED_STOP = re.compile(r" [.!?]$")


def remarks(system, lines, references, sources=()):
    """Look through the output of a system.

    Args:
        system: its name.
        lines: N of them.
        references: N lines of the first reference translation.
        sources: N lines, if they are known.

    Returns:
        list of :class:`posnet_eval.statistics.results.Remark`.
    """
    usual, at_home = _scripts(tuple(references))
    sources = sources or [None] * len(lines)
    checks = {
        "empty": lambda line, reference, source: is_blank(line),
        "copies of the source": lambda line, reference, source: line and line == source != reference,
        "mostly in another script": lambda line, reference, source: _foreign(line, usual, at_home),
        f"with something said {OFTEN} times or more in a row": lambda line, reference, source: (
            _repeats(line) and not _repeats(reference)
        ),
        "with marks of subwords": lambda line, reference, source: (
            _SUBWORDS.search(line) and not _SUBWORDS.search(reference)
        ),
        "with HTML entities": lambda line, reference, source: (
            _ENTITIES.search(line) and not _ENTITIES.search(reference)
        ),
        f"more than {OUTLIER} times as long or as short as the reference": lambda line, reference, source: _outlier(
            line, reference
        ),
    }
    triples = list(zip(lines, references, sources, strict=True))
    found = []
    for text, check in checks.items():
        odd = [number for number, triple in enumerate(triples, 1) if check(*triple)]
        if odd:
            lines_are = "line" if len(odd) == 1 else "lines"
            found.append(Remark(system, f"{len(odd):,} {lines_are} {text}", tuple(odd[:SHOWN])))
    return found + [Remark(system, text) for text in _of_the_whole(lines, references)]


def _of_the_whole(lines, references):
    if lines and list(lines) == list(references):
        yield "all lines are those of the reference"
    elif of_another_text(lines, references):
        yield (
            "its lines are no more like their own references than like other lines': is it the output for another test "
            "set, or in another order?"
        )
    spaced = sum(bool(_SPACED_STOP.search(line)) for line in lines)
    if spaced > 0.3 * len(lines) and spaced > 3 * sum(bool(_SPACED_STOP.search(line)) for line in references):
        yield f"{spaced:,} lines end in a space and a full stop: it looks tokenised; scores are meant for plain text"


def _repeats(line):
    words = line[:2000].split()
    # The search is slow, and hardly a line says a word so often.
    return len(words) - len(set(words)) >= OFTEN - 1 and _REPEATED.search(" ".join(words))


def _outlier(line, reference):
    longer, shorter = max(len(line), len(reference)), min(len(line), len(reference))
    return not is_blank(line) and longer - shorter > SHORT and longer > OUTLIER * shorter


@functools.lru_cache(maxsize=1)  # systems share the reference
def _scripts(lines):
    """The scripts of a text, and the characters that occur in it and are of none but these."""
    counts = Counter()
    for line in lines:
        counts.update(_letters(line))
    total = sum(counts.values())
    usual = {script for script, count in counts.items() if count >= COMMON * total}
    return usual, {letter for letter in set().union(*lines) if _script(letter) in {None, *usual}}


def _foreign(line, usual, at_home):
    if set(line) <= at_home:  # nearly always
        return False
    counts = _letters(line)
    foreign = sum(count for script, count in counts.items() if script not in usual)
    return foreign >= LETTERS and foreign > sum(counts.values()) / 2


def _letters(line):
    counts = Counter()
    for letter, count in Counter(line).items():
        script = _script(letter)
        if script:
            counts[script] += count
    return counts


@functools.lru_cache(maxsize=2**16)
def _script(letter):
    """The first word of a letter's name, as LATIN or CJK; None for other characters."""
    if not unicodedata.category(letter).startswith("L"):
        return None
    return unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
