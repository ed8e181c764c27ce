"""Descriptions of Debian's packages and their translations: apt's indexes ``Translation-LANGUAGE``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from posnet_data_prep.sources.readers import Reader
from posnet_fairseq.shared.errors import UsageError

_NAME, _HASH = "Package: ", "Description-md5: "


@dataclass(frozen=True)
class Description:
    """The description of a package in one language.

    Args:
        package: its name.
        paragraphs: the short description, then the paragraphs of the long one.
    """

    package: str
    paragraphs: tuple[str, ...]


def read_descriptions(path: Path, language: str) -> dict[str, Description]:
    """Descriptions of an index by the hash of the English text, which all translations of it share.

    Packages with one text have one description, that of the first package.

    Args:
        path: the index, compressed or not.
        language: its two-letter code.

    Raises:
        UsageError: the file is damaged, or no such index.
    """
    found: dict[str, Description] = {}
    text = f"Description-{language}: "
    for number, record, ends in _records(path):
        if not ends and found:
            raise UsageError(
                f"{path} is cut short: behind its last record, which begins in line {number}, there is no empty line. "
                "Copy it again."
            )
        fields = [next((line for line in record if line.startswith(start)), "") for start in (_NAME, _HASH, text)]
        if not all(fields):
            raise UsageError(
                f"{path}: the record that begins in line {number} is none of a package's description in the language "
                f"{language} ({_NAME.strip()}, {_HASH.strip()}, {text.strip()}). Give an index Translation-{language} "
                "of apt."
            )
        start = record.index(fields[2]) + 1
        lines = [line for line in record[start:] if line.startswith(" ")]
        package, key, short = (
            field.removeprefix(start) for field, start in zip(fields, (_NAME, _HASH, text), strict=True)
        )
        found.setdefault(key, Description(package, tuple(paragraphs(short, lines))))
    if not found:
        raise UsageError(f"{path} is empty. Give an index Translation-{language} of apt.")
    return found


def _records(path: Path) -> Iterator[tuple[int, list[str], bool]]:
    """Records of a control file.

    Returns:
        for each, the number of the line in which it begins, its lines, and whether an empty line ends it.
    """
    record: list[str] = []
    number = 0
    for number, line in enumerate(Reader(strict=True).plain(path), start=1):
        if line:
            record.append(line)
        elif record:
            yield number - len(record), record, True
            record = []
    if record:
        yield number - len(record) + 1, record, False


def paragraphs(short: str, lines: Sequence[str]) -> Iterator[str]:
    """Paragraphs of a description: Debian Policy 5.6.13.

    Args:
        short: the short description, the first paragraph.
        lines: the long description. " ." ends a paragraph; a line that begins with two spaces, which programs show
            unchanged, stands alone.
    """
    paragraph: list[str] = [short]
    for line in ["  ", *lines, " ."]:
        ends = line.strip() in ("", ".")
        verbatim = line.startswith("  ")
        if (ends or verbatim) and paragraph:
            yield " ".join(" ".join(paragraph).split())
            paragraph = []
        if not ends and verbatim:
            yield " ".join(line.split())
        elif not ends:
            paragraph.append(line)
