"""Single files out of archives that are not trusted."""

import posixpath
import shutil
import tarfile

from posnet_data_prep.sources.compressed import DAMAGED, open_binary
from posnet_fairseq.shared.errors import UsageError

# A text that is compressed to less than this part of its size is no text.
MOST_EXPANSION = 100
SMALL = 100 << 20  # bytes below which nobody asks

_ASK = "Do not use this file; take it from another source."


def extract(archive, members, folder, bar):
    """Write some members of a tar archive, compressed or not, into a folder, under names of our own.

    Args:
        archive: path.
        members: dict from a member's path, before which the archive may have more folders, to the name of its file.
        folder: where the files go.
        bar: shows progress in bytes.

    Raises:
        UsageError: it is damaged or no archive, a member is missing, or it is made to do harm: a path outside, a link
            or device for a member, or far more than could come out of a text of this size.
    """
    missing = dict(members)
    limit = max(SMALL, MOST_EXPANSION * archive.stat().st_size)
    total = 0
    try:
        with open_binary(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                path = _checked(entry.name, archive)
                total += entry.size
                if total > limit:
                    raise UsageError(f"{archive} was refused: more than {limit:,} bytes would come out of it. {_ASK}")
                wanted = [member for member in missing if path == member or path.endswith(f"/{member}")]
                for member in wanted:
                    if not entry.isfile():
                        raise UsageError(f"{archive} was refused: its member {entry.name} is no plain file. {_ASK}")
                    with open(folder / missing.pop(member), "wb") as file:
                        shutil.copyfileobj(tar.extractfile(entry), file, 1 << 20)
                    bar.advance(entry.size)
                if not missing:
                    break
    except (*DAMAGED, tarfile.TarError) as error:
        raise UsageError(
            f"{archive} is damaged or no archive ({error or type(error).__name__}). Remove it and run again to "
            "download it anew."
        ) from error
    if missing:
        raise UsageError(f"{archive} has no {' and no '.join(missing)}. It is not the archive that was expected.")


def _checked(name, archive):
    """A member's path without ``.`` in it; one outside is refused."""
    path = posixpath.normpath(name)
    if path.startswith(("/", "../")) or path == "..":
        raise UsageError(f"{archive} was refused: its member {name} would be written outside. {_ASK}")
    return path
