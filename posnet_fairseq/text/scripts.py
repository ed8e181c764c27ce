"""The scripts that lines of text are written in."""

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable

LETTERS = 3  # of a script, from which on a line is in that script
SAMPLE = 1000  # lines that tell the scripts of a text
_SHARE = 0.2  # of the lines of a text, from which on their script is one of the text's
_CHINESE_OR_JAPANESE = {"CJK", "HIRAGANA", "KATAKANA"}


@functools.lru_cache(maxsize=2**16)
def script(letter: str) -> str | None:
    """Return the first word of a letter's Unicode name, as LATIN or CJK; None for other characters."""
    if not unicodedata.category(letter).startswith("L"):
        return None
    return unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]


def letters(line: str) -> Counter[str]:
    """Return the number of letters of each script in a line."""
    counts: Counter[str] = Counter()
    for letter, count in Counter(line).items():
        if found := script(letter):
            counts[found] += count
    return counts


class Scripts:
    """Scripts that are usual in a text."""

    def __init__(self, usual: Iterable[str]) -> None:
        self._usual = set(usual)
        self._at_home: set[str] = set()  # characters that are in one of them or in no script, as far as seen

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Scripts":
        """Return the scripts that a fifth of the lines of a text are mostly in; of Chinese and Japanese all three."""
        mostly = Counter(max(counts, key=counts.__getitem__) for line in lines if (counts := letters(line)))
        usual = {name for name, count in mostly.items() if count >= _SHARE * mostly.total()}
        return cls(usual | _CHINESE_OR_JAPANESE if usual & _CHINESE_OR_JAPANESE else usual)

    def is_foreign(self, line: str, entirely: bool = False) -> bool:
        """Return whether a line has :data:`LETTERS` letters in other scripts, and more than in these (or only such)."""
        unseen = set(line) - self._at_home
        if not unseen:  # nearly always
            return False
        self._at_home |= {letter for letter in unseen if script(letter) in {None, *self._usual}}
        if unseen <= self._at_home:
            return False
        counts = letters(line)
        foreign = sum(count for name, count in counts.items() if name not in self._usual)
        own = counts.total() - foreign
        return foreign >= LETTERS and (own == 0 if entirely else own < foreign)
