"""Free space on disks, asked for before work that would fill them."""

import shutil
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import amount, shown


def refuse_too_little_disk(folder: Path, needed: int) -> None:
    """Refuse work that needs about this many bytes more than are free in a folder, which may not be there yet."""
    free = free_bytes(folder)
    if needed > free:
        raise UsageError(
            f"{shown(folder)}: about {amount(needed, 'bytes')} are needed there, {amount(free, 'bytes')} are free. "
            "Make room, or choose a place on another disk."
        )


def free_bytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which may not be there yet."""
    return shutil.disk_usage(existing(folder)).free


def are_on_one_disk(*folders: Path) -> bool:
    """Return whether folders, which may not be there yet, share their free bytes."""
    return len({existing(folder).stat().st_dev for folder in folders}) == 1


def existing(folder: Path | str) -> Path:
    """Return the folder, or the nearest above it that is there."""
    folder = Path(folder).absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())
