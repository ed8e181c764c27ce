"""Languages by their tags, such as ``de``, ``gsw``, ``zho_Hans`` or ``pt-BR``."""

import importlib.util
import re
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
# sacreBLEU's tokenizers of single languages, each with the package that it needs beside sacreBLEU.
_TOKENIZERS = {"zh": ("zh", None), "ja": ("ja-mecab", "MeCab"), "ko": ("ko-mecab", "mecab_ko")}
# Written without spaces between words, and sacreBLEU has no tokenizer of their words.
BY_CHARACTERS = ("th", "lo", "km", "my", "bo", "dz")


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
    if code in BY_CHARACTERS:
        return "char", f"BLEU counts characters: sacreBLEU has no tokenizer of words for {tag}"
    tokenizer, package = _TOKENIZERS.get(code, ("13a", None))
    if package is None or importlib.util.find_spec(package):
        return tokenizer, ""
    return "char", (
        f"BLEU counts characters, as {tokenizer}, sacreBLEU's tokenizer for {tag}, is not installed (pip install "
        f"'sacrebleu[{code}]'): it is not comparable with BLEU of words"
    )
