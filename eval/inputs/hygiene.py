"""Remarks on outputs: oddities that change scores, or that scores do not show."""

import functools
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from posnet_eval.metrics.base import FloatArray
from posnet_fairseq.shared.errors import counted
from posnet_fairseq.shared.files import is_blank
from posnet_fairseq.text.languages import SAMPLE, Scripts, letters
from posnet_fairseq.text.plain import PlainText, find_entity

SHOWN = 10  # line numbers of a remark
OUTLIER = 3  # times longer or shorter than the reference
SHORT = 20  # characters that do not make a line an outlier
OFTEN = 3  # occurrences in a row from which on a word or phrase counts as repeated
PHRASE = 4  # words of the longest phrase searched for
UNLIKE = 0.05  # difference of the shares of lines in a normal form from which on it is said
CASED = 0.3  # difference of the shares of lines in lower or upper case from which on it is said
COMMON = 0.02  # share of a reference's letters from which on a script belongs to the language
NGRAM, COMPARED, LINES_COMPARED = 3, 1000, 200  # characters, those of a line, lines of a file by which texts compare

# Scripts whose words sacreBLEU's usual tokenizer 13a does not tell apart: the language that they look like, and the
# codes of languages in them.
UNSPACED = {
    "CJK": ("Chinese", ("zh", "ja")),
    "HIRAGANA": ("Japanese", ("ja",)),
    "KATAKANA": ("Japanese", ("ja",)),
    "HANGUL": ("Korean", ("ko",)),
    "THAI": ("Thai", ("th",)),
    "LAO": ("Lao", ("lo",)),
    "KHMER": ("Khmer", ("km",)),
    "MYANMAR": ("Burmese", ("my",)),
    "TIBETAN": ("Tibetan", ("bo", "dz")),
}

_SUBWORDS = re.compile(r"@@( |$)|▁|</?s>|<unk>")
_REPEATED = re.compile(rf"(?<!\S)(\S+(?: \S+){{0,{PHRASE - 1}}}?)(?: \1){{{OFTEN - 1},}}(?!\S)")


@dataclass(frozen=True)
class Remark:
    """An oddity in the data that readers of scores should know."""

    system: str  # whose output has it; "" for source and reference
    text: str  # what it is, as "3 empty lines"
    lines: tuple[int, ...] = ()  # numbers of the first lines concerned, from 1


def given_remarks(sources: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[Remark]:
    """Yield remarks on the source and the reference translations."""
    several = len(references) > 1
    texts = {f"reference {number}" if several else "the reference": text for number, text in enumerate(references, 1)}
    for name, lines in {"the source": sources, **texts}.items():
        empty = [place for place, line in enumerate(lines, 1) if is_blank(line)]
        if empty:
            are = "is" if len(empty) == 1 else "are"
            unused = f" and {are} not used" if several and name in texts else ""
            yield Remark("", f"{counted(len(empty), 'line')} of {name} {are} empty{unused}", tuple(empty[:SHOWN]))
        plain = PlainText(lines)
        if plain.is_segmented:
            lines_have = counted(plain.segmented, f"line in {name} has", f"lines in {name} have")
            yield Remark("", f"{lines_have} subword marks; scores are for plain text")
        if plain.is_tokenized:
            lines_end = counted(plain.tokenized, f"line in {name} ends", f"lines in {name} end")
            yield Remark("", f"{lines_end} in a space and a period, so it looks tokenized")


def remarks(
    system: str,
    lines: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str] = (),
    lowercase: bool = False,
) -> list[Remark]:
    """Return remarks on N lines of a system's output, by N or none of the first reference and of the source.

    Of case nothing is said if scores ignore it.
    """
    usual = _scripts(tuple(references))
    checks: dict[str, Callable[[str, str, str | None], object]] = {
        "{are} empty": lambda line, reference, source: is_blank(line),
        "{are copies} of the source": lambda line, reference, source: line and line == source != reference,
        "{are} mostly in another script": lambda line, reference, source: usual.is_foreign(line),
        "{differ} from the reference by spaces only": lambda line, reference, source: (
            line != reference
            and (words := line.split()) != reference.split()
            and "".join(words) == "".join(reference.split())
        ),
        f"{{repeat}} a phrase {OFTEN} times or more": _not_in_reference(_repeats),
        "{have} subword marks": _not_in_reference(_SUBWORDS.search),
        "{have} HTML entities": _not_in_reference(find_entity),
        f"{{are}} more than {OUTLIER} times as long or as short as the reference": lambda line, reference, source: (
            references and _is_outlier(line, reference)
        ),
    }
    originals: Sequence[str | None] = sources or [None] * len(lines)
    singular = {"are": "is", "are copies": "is a copy", "differ": "differs", "have": "has", "repeat": "repeats"}
    triples = list(zip(lines, references or [""] * len(lines), originals, strict=True))
    found = []
    for text, check in checks.items():
        odd = [number for number, triple in enumerate(triples, 1) if check(*triple)]
        if odd:
            # The verbs in braces agree with the number of lines.
            verbs = singular if len(odd) == 1 else dict(zip(singular, singular, strict=True))
            found.append(Remark(system, f"{counted(len(odd), 'line')} {text.format_map(verbs)}", tuple(odd[:SHOWN])))
    return found + [Remark(system, text) for text in _of_the_whole(lines, references, lowercase)]


def _not_in_reference(has: Callable[[str], object]) -> Callable[[str, str, str | None], bool]:
    """Return a check for what a line has, but not its reference, or its source if there is no reference."""
    return lambda line, reference, source: bool(has(line)) and not has(reference or source or "")


def _is_outlier(line: str, reference: str) -> bool:
    shorter, longer = sorted((len(line), len(reference)))
    return longer - shorter > SHORT and longer > OUTLIER * shorter and not is_blank(line)


def _of_the_whole(lines: Sequence[str], references: Sequence[str], lowercase: bool) -> Iterator[str]:
    if not references:
        return
    if lines and list(lines) == list(references):
        yield "identical to the reference"
    elif looks_misaligned(lines, references):
        yield "translations do not match their references: wrong test set, wrong order, or an untrained model?"
    for form in ("NFC", "NFKC"):
        odd, usual = (sum(not unicodedata.is_normalized(form, line) for line in text) for text in (lines, references))
        if abs(odd - usual) > UNLIKE * len(lines):
            yield (
                f"{counted(odd, 'line is', 'lines are')} not in Unicode normal form {form} (reference: {usual:,}), so "
                "letters that look the same count as different"
            )
            break
    pairs = zip(lines, references, strict=True)
    cased = [] if lowercase else [pair for pair in pairs if all(text != text.swapcase() for text in pair)]
    for name, change in (("lower", str.lower), ("upper", str.upper)):
        odd, usual = (sum(pair[side] == change(pair[side]) for pair in cased) for side in (0, 1))
        if abs(odd - usual) > CASED * len(lines):
            yield f"{counted(odd, 'line is', 'lines are')} all in {name} case (reference: {usual:,})"
    plain = PlainText(lines)
    if plain.is_tokenized and plain.tokenized > 3 * PlainText(references).tokenized:
        yield (
            f"{counted(plain.tokenized, 'line ends', 'lines end')} in a space and a period, so it looks tokenized; "
            "scores are for plain text"
        )


def _repeats(line: str) -> bool:
    words = line[:2000].split()
    if len(words) - len(set(words)) < OFTEN - 1:
        return False
    # The search is slow, and in few lines does a word return after as few words as a phrase has.
    returns = any(any(map(operator.eq, words, words[step:])) for step in range(1, PHRASE + 1))
    return returns and bool(_REPEATED.search(" ".join(words)))


def unspaced_script(lines: Sequence[str]) -> str | None:
    """Return the script, a key of :data:`UNSPACED`, of a quarter of the letters of most lines: names do not count."""
    counts: Counter[str] = Counter()
    chosen = 0
    lines = lines[:: len(lines) // SAMPLE + 1]
    for of_line in map(letters, lines):
        of_unspaced = sum(of_line[script] for script in UNSPACED)
        if of_unspaced and 4 * of_unspaced >= sum(of_line.values()):
            chosen += 1
            counts.update(of_line)
    if 2 * chosen <= sum(not is_blank(line) for line in lines):
        return None
    if counts["HIRAGANA"] >= COMMON * sum(counts.values()):  # Japanese has Chinese characters, too
        return "HIRAGANA"
    return max(UNSPACED, key=lambda script: counts[script])


def can_be(code: str, lines: Sequence[str]) -> bool:
    """Return whether a text can be in a language: of one without spaces, more than a few letters are in its script."""
    own = [script for script, (_, codes) in UNSPACED.items() if code in codes]
    counts: Counter[str] = Counter()
    for line in lines if own else ():
        counts.update(letters(line))
    return sum(counts[script] for script in own) >= COMMON * counts.total()


@functools.lru_cache(maxsize=1)  # systems share the reference
def _scripts(lines: tuple[str, ...]) -> Scripts:
    """Return the scripts of more than a few letters of a text."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(letters(line))
    return Scripts(script for script, count in counts.items() if count >= COMMON * counts.total())


def similarities(some: Sequence[str], others: Sequence[str]) -> FloatArray:
    """Return (N,) Dice coefficients of the sets of character trigrams of N pairs of lines, between 0 and 1."""
    pairs = ((_trigrams(a), _trigrams(b)) for a, b in zip(some, others, strict=True))
    return np.array([2 * len(a & b) / (len(a) + len(b)) for a, b in pairs])


@functools.lru_cache(maxsize=4 * LINES_COMPARED)  # systems share the reference
def _trigrams(line: str) -> frozenset[str]:
    line = line[:COMPARED].lower()
    return frozenset(line[start : start + NGRAM] for start in range(max(len(line) - NGRAM + 1, 1)))


def first_misaligned_line(lines: Sequence[str], references: Sequence[str]) -> int:
    """Return the number (from 1) of the line at which lines seem to be missing or superfluous.

    The lines in front of it agree best with the reference lines of equal number, those behind it with the reference
    lines shifted by the difference of the counts.
    """
    size = min(len(lines), len(references))
    excess = len(lines) - len(references)
    in_step = similarities(lines[:size], references[:size])
    moved = similarities(lines[max(excess, 0) :], references[max(-excess, 0) :])
    before = np.concatenate([[0], np.cumsum(in_step)])
    behind = np.concatenate([np.cumsum(moved[::-1])[::-1], [0]])
    agreement = before + behind
    # the last of several best positions: lines missing or added at the end are the likeliest fault
    return size - int(np.argmax(agreement[::-1])) + 1


def looks_misaligned(lines: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether lines are no more similar to their own references than to those of other lines."""
    if len(lines) < 10:
        return False
    some = range(0, len(lines), -(-len(lines) // LINES_COMPARED))
    own = similarities([lines[place] for place in some], [references[place] for place in some]).mean()
    other = similarities([lines[place] for place in some], [references[place - 1] for place in some]).mean()
    return bool(own < 1.2 * other + 0.01)
