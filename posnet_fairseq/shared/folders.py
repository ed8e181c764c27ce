"""Folders that are either complete or absent."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.files import check_place, umask


def check_new_folder(folder: Path, option: str) -> None:
    """Check that a folder can be made and is not there. Commands call it before their work; nothing is made.

    Raises:
        UsageError: something is there, or it cannot be made.
    """
    if os.path.lexists(folder):
        raise UsageError(f"{option} {folder} is there already. Give another folder, or remove it.")
    check_place(folder, option)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Provide a temporary folder, which gets its name when the block ends without an error and is removed after one.

    Raises:
        UsageError: it cannot be written, or the disk is full.
    """
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name[:40]}."))
        yield temporary
        temporary.chmod(0o777 & ~umask())
        temporary.rename(folder)
    except OSError as error:
        is_full = error.errno in DISK_FULL
        if temporary and not is_full and error.filename and not str(error.filename).startswith(str(temporary)):
            raise  # of a file that was read
        why = "the disk is full. Make room, and run it again" if is_full else f"{error.strerror}. Choose another place"
        raise UsageError(f"cannot write {folder}: {why}.") from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
