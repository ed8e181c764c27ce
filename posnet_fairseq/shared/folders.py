"""Folders that are either complete or absent."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.files import check_place, umask, unwritable


def check_new_folder(folder: Path, option: str) -> None:
    """Check that a folder can be made and is not there. Commands call it before their work; nothing is made."""
    if os.path.lexists(folder):
        raise UsageError(f"{option} {folder} is there already. Give another folder, or remove it.")
    check_place(folder, option)


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Provide a temporary folder, which gets its name when the block ends without an error and is removed after one."""
    temporary = None
    try:
        temporary = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=f".{folder.name[:40]}."))
        yield temporary
        temporary.chmod(0o777 & ~umask())
        temporary.rename(folder)
    except OSError as error:
        is_ours = not error.filename or str(error.filename).startswith(str(temporary))
        if temporary and not is_ours and error.errno not in DISK_FULL:
            raise  # of a file that was read
        raise unwritable(folder, error) from error
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
