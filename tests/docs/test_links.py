"""Links between the documents: what they are called, and that what they lead to is there."""

import re
from pathlib import Path

import pytest

from support.documents import ROOT, prose

DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs").glob("*/*.md"),
        *ROOT.glob("recipes/*/*.md"),
    ]
)
# Pages of the site that are made of a file of the repository.
PAGES = {path.name.lower(): path for path in ROOT.glob("*.md")}


def headings(path):
    """The title of a document, and its headings by anchor."""
    found = re.findall(r"^#{1,4} (.*)$", prose(path.read_text(encoding="utf-8")), re.M)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"): heading for heading in found}
    return found[0] if found else None, anchors


def links(path):
    """Text and target of the links to documents."""
    text = prose(path.read_text(encoding="utf-8"))
    for words, target in re.findall(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if not target.startswith("http") and (not file or file.endswith(".md")):
            yield " ".join(words.split()), file, anchor


LINKS = [(path, *link) for path in DOCUMENTS for link in links(path)]


@pytest.mark.parametrize(
    ("path", "words", "file", "anchor"), LINKS, ids=[f"{path.relative_to(ROOT)}: {words}" for path, words, *_ in LINKS]
)
def test_a_link_is_called_as_what_it_leads_to(path, words, file, anchor):
    """By the title of the page or of the section, whole or up to its colon, or by the path of the file."""
    found = (path.parent / file).resolve() if file else path
    if found.parent == ROOT / "docs":
        found = PAGES.get(found.name, found)
    assert found.is_file(), f"{file} is not there"
    title, anchors = headings(found)
    if anchor:
        assert anchor in anchors, f"{file} has no section #{anchor}"
        title = anchors[anchor]
    name = str(found.relative_to(ROOT))
    allowed = {title, title.partition(":")[0], name, Path(name).name, Path(name).stem}
    assert words.lower() in {each.lower() for each in allowed}, f"[{words}] leads to: {title}"
