"""Sphinx configuration of the documentation: ``sphinx-build -W docs docs/site``."""

import inspect
import logging
import os
import re
from pathlib import Path

from sphinx.application import Sphinx

from posnet_fairseq import __version__
from posnet_fairseq.costs.mixer_tables import option_rows, overview, summary
from posnet_fairseq.mixers.bases.token_mixer import TokenMixer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.transformer.sizes import SIZES

logging.getLogger().setLevel(logging.WARNING)  # fairseq has lowered it

HERE = Path(__file__).parent
SIZE, WORDS, LENGTH = "base", 43650, 25  # architecture, vocabulary and tokens for which cost is given
# Folders of pictures of mixers: what the models are, and the sentence of those that depend on one.
PICTURES = {
    "multi30k": (
        "model of size `_multi30k`, trained until its perplexity rose",
        "A man in a red hat is playing the guitar on the street.",
    ),
    "quickstart": (
        "tiny model after 1,000 updates on the quickstart's corpus, by offsets m - n (negative for earlier tokens)",
        "Restart the server to apply the new settings.",
    ),
}

# Pages whose text is a file of the repository.
REPOSITORY = {name.lower(): f"{name}.md" for name in ("README", "RESULTS", "CHANGELOG", "CONTRIBUTING")}

# Functions, words and signs in the formulas of mixers, which terminals show as text.
_FUNCTION = re.compile(r"(?<![\w_])(clip|softmax|exp|log|index|ReLU|Re)\b")
_TEXT = re.compile(r"(?<![\w^])(?:no softmax|gated|values|for|aPosNet's|rPosNet's)(?![\w(])")
SIGNS = {
    "α̂": r"\hat{α}",
    "ñ": r"\tilde{n}",
    "m̃": r"\tilde{m}",
    "·": r"\cdot ",
    "⊙": r"\odot ",
    "≤": r"\leq ",
    "±": r"\pm ",
    "Σ": r"\sum ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "|": r"\vert ",
    "¹": "^1",
    "²": "^2",
}

project = "posnet"
author = "the posnet developers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["site"]
napoleon_custom_sections = [("Class attributes", "attributes")]
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
html_theme = "furo"
# A link to edit each page, where the repository is known: Read the Docs says which one it builds.
repository = os.environ.get("READTHEDOCS_GIT_CLONE_URL", "").removesuffix(".git")
if repository.startswith("https://"):
    branch = os.environ.get("READTHEDOCS_GIT_IDENTIFIER", "main")
    html_theme_options = {"source_repository": repository, "source_branch": branch, "source_directory": "docs/"}
html_title = f"posnet {__version__}"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wrap.css"]
# The commands of these pages are bash with placeholders.
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]


def setup(app: Sphinx) -> dict[str, bool]:
    """Complete pages when Sphinx reads them."""
    figures: dict[str, dict[str, str]] = {}

    def complete(app: Sphinx, name: str, source: list[str]) -> None:
        if name in REPOSITORY:
            source[0] = _links((HERE.parent / REPOSITORY[name]).read_text(encoding="utf-8"))
        elif name == "mixers/index":
            source[0] += _table_of_mixers()
        elif name.startswith("mixers/"):
            if not figures:
                figures.update({row["mixer"]: row for row in overview(SIZE, WORDS, LENGTH)})
            mixer = name.removeprefix("mixers/")
            source[0] = _page(mixer, source[0], figures[mixer])
        else:
            source[0] = _links(source[0])

    app.connect("source-read", complete)
    return {"parallel_read_safe": True}


def _links(text: str) -> str:
    """The text, in which links to files of the repository lead to their pages, or are plain names without a page."""
    for page, file in REPOSITORY.items():
        text = re.sub(rf"\]\((\.\./)?{file}\)", f"]({page}.md)", text)
    text = text.replace("](docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:\.\./|recipes/)[^)]*\)", r"\1", text)


def _table_of_mixers() -> str:
    rows = [
        "\n## All mixers\n",
        "| mixer | weight or energy of query n and token m | paper | may stand in |",
        "|---|---|---|---|",
    ]
    for name in mixer_names():
        mixer = get_mixer(name)
        formula, paper = summary(mixer)[0], _cell(summary(mixer)[1])
        rows.append(f"| [{name}]({name}.md) | ${latex(formula)}$ | {paper} | {', '.join(mixer.places)} |")
    pages = "\n".join(mixer_names())
    return "\n".join([*rows, "", "```{toctree}", ":hidden:", pages, "```", ""])


def _page(name: str, when: str, figures: dict[str, str]) -> str:
    """The page of a mixer, with Markdown on when to use it, and its row of ``overview``."""
    mixer = get_mixer(name)
    formula, paper = summary(mixer)
    _, *rest = (inspect.getdoc(mixer) or "").partition("\n\n")
    parts = [f"# {name}", f"$$\n{latex(formula)}\n$$", _prose(f"{paper}."), _prose(rest[-1]), _picture(name)]
    parts += ["## When to use it", _raised(when.strip())]
    parts += ["## Cost", _cost(mixer, figures)]
    rows = ["| option | default | meaning |", "|---|---|---|"]
    rows += [
        f"| `{option}` {_cell(values)} | {_cell(default)} | {_raised(_cell(meaning))} |"
        for option, values, default, meaning in option_rows(mixer)
    ]
    parts += ["## Options", *(["\n".join(rows)] if len(rows) > 2 else [])]
    parts.append(f"Architectures: `--arch {mixer.arch}_{{{','.join(SIZES)}}}`.")
    return "\n\n".join(part for part in parts if part) + "\n"


def _prose(docstring: str) -> str:
    """A docstring as Markdown, in which only text in double backquotes is code."""
    pieces = re.split(r"(``.+?``)", docstring)
    return "".join(piece if piece.startswith("``") else _raised(_escaped(piece)) for piece in pieces)


def _raised(escaped: str) -> str:
    """Escaped Markdown with superscripts and subscripts, as in W^Q_{n-m}, in HTML."""
    for mark, tag in ((r"\\_", "sub"), (r"\^", "sup")):
        escaped = re.sub(rf"{mark}(?:\{{(.+?)\}}|([^\W_]+))", rf"<{tag}>\1\2</{tag}>", escaped)
    return escaped


def _picture(name: str) -> str:
    for folder, (model, sentence) in PICTURES.items():
        if (HERE / "pictures" / folder / f"{name}.png").exists():
            of_sentence = "" if get_mixer(name).static else f', for the sentence "{sentence}"'
            return (
                f"![The mean weight at each offset, a line for every head](../pictures/{folder}/{name}.png)\n\n"
                f"(The mean weight at each offset, in the encoder of a {model}{of_sentence}.)"
            )
    return ""


def _cost(mixer: type[TokenMixer], figures: dict[str, str]) -> str:
    """A paragraph on parameters and operations; figures with stored energies follow a semicolon if they differ."""
    numbers = {title: "; with stored energies ".join(text.split("\n")) for title, text in figures.items()}
    return (
        f"Parameters of `{mixer.arch}_{SIZE}` with {WORDS:,} words: {numbers['parameters']}.\n\n"
        f"Multiplications of a layer: {_escaped(numbers['operations of a layer'])}; for N = {LENGTH} tokens "
        f"{numbers[f'N={LENGTH}']}. (N: tokens, D: width, K̂ = 2K + 1 offsets, E: heads × `--alpha-dim`. A product and "
        "its addition count once; operations whose number does not grow with N are left out.)"
    )


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]<>#|~$])", r"\\\1", text)


def _cell(text: str) -> str:
    return _escaped(text).replace("\n", " ")


def latex(formula: str) -> str:
    """A formula of a docstring, as ``W^Q_{n-m}`` or ``E_rel[clip(n - m, ±K)]``, in LaTeX without dollars."""
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
