"""Extraction of single files from archives that are not trusted."""

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from posnet_fairseq.shared.compressed import DAMAGED, open_binary
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import Bar

MOST_EXPANSION = 100  # bytes for each byte of an archive; no text can be compressed so far
SMALL = 100 << 20  # bytes that every archive may expand to

_ASK = "Do not use this file; take it from another source."


def extract(archive: Path, members: Mapping[str, str], folder: Path, bar: Bar) -> None:
    """Extract members of a tar archive {end of the path in it: name of the file to write} into a folder.

    The archive is not trusted: links, devices and what expands to far more than text can are refused.
    """
    missing = dict(members)
    limit = max(SMALL, MOST_EXPANSION * archive.stat().st_size)
    total = 0
    try:
        with open_binary(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                total += entry.size
                if total > limit:
                    raise UsageError(f"{archive} was refused: it would expand to more than {limit:,} bytes. {_ASK}")
                for member in [name for name in missing if f"/{entry.name}".endswith(f"/{name}")]:
                    source = tar.extractfile(entry) if entry.isfile() else None
                    if source is None:
                        raise UsageError(f"{archive} was refused: its member {entry.name} is no plain file. {_ASK}")
                    with open(folder / missing.pop(member), "wb") as file:
                        shutil.copyfileobj(source, file, 1 << 20)
                    bar.advance(entry.size)
                if not missing:
                    break
    except (*DAMAGED, tarfile.TarError) as error:
        raise UsageError(
            f"{archive} is damaged or no archive ({error or type(error).__name__}). Remove it and run again to "
            "download it again."
        ) from error
    if missing:
        raise UsageError(f"{archive} has no {' and no '.join(missing)}. It is not the archive that was expected.")
