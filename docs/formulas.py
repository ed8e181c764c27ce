"""The formulas of mixers, which terminals show as text, in LaTeX."""

import re

FUNCTIONS = ("clip", "softmax", "exp", "index", "Re")
WORDS = ("no softmax", "gated", "values", "for", "aPosNet's", "rPosNet's")
SIGNS = {
    "α̂": r"\hat{α}",
    "ñ": r"\tilde{n}",
    "m̃": r"\tilde{m}",
    "·": r"\cdot ",
    "≤": r"\leq ",
    "±": r"\pm ",
    "Σ": r"\sum ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "|": r"\vert ",
    "²": "^2",
}
_TEXT = re.compile(rf"(?<![\w^]){'|'.join(map(re.escape, WORDS))}(?![\w(])")
_FUNCTION = re.compile(rf"(?<![\w_])({'|'.join(FUNCTIONS)})\b")


def latex(formula: str) -> str:
    """A formula in LaTeX, without dollars.

    Args:
        formula: as in the first line of a mixer's docstring: ``√d``, ``W^Q_{n-m}``, ``E_rel[clip(n - m, ±K)]``.
    """
    texts: list[str] = []

    def keep(match: re.Match[str]) -> str:
        texts.append(match[0])
        return f"\0{len(texts) - 1}\0"

    made = _TEXT.sub(keep, formula)
    made = _FUNCTION.sub(r"\\operatorname{\1}", made)
    made = re.sub(r"√(?:\(([^)]*)\)|(\w))", r"\\sqrt{\1\2}", made)
    for sign, command in SIGNS.items():
        made = made.replace(sign, command)
    made = re.sub(r", (?=\w\S* = )", r",\\quad ", made)  # another equation
    made = re.sub(r"_(rel)\b", r"_{\\mathrm{\1}}", made)
    made = re.sub(r"([_^])([A-Za-z]{2,})", r"\1{\2}", made)
    return re.sub(r"\0(\d+)\0", lambda match: rf"\ \text{{{texts[int(match[1])]}}}\ ", made)
