"""Repair of a run that was killed while it saved, so that it resumes.

fairseq writes numbered checkpoints whole but copies them to checkpoint_last.pt, from which it resumes; a kill during
the copy leaves half a file.
"""

import shutil
from pathlib import Path

from posnet_fairseq.shared.errors import DamagedError
from posnet_fairseq.shared.files import replacing


def repair(folder: Path) -> str:
    """Replace checkpoint_last.pt by the newest other one if it is there and damaged, or put it aside if there is none.

    Returns:
        a sentence about it, "" if nothing was done.

    Raises:
        UsageError: it cannot be read now, for another reason than what is in it.
    """
    last = folder / "checkpoint_last.pt"
    found = damage(last) if last.exists() else ""
    if not found:
        return ""
    others = sorted(set(folder.glob("checkpoint*.pt")) - {last}, key=lambda path: -path.stat().st_mtime_ns)
    newest = next((path for path in others if not damage(path)), None)
    if newest is None:
        aside = last.with_name("checkpoint_last.pt.damaged")
        last.replace(aside)
        return f"{found} There is no other: the training begins again. The file is now {aside.name}."
    with replacing(last) as temporary:
        shutil.copyfile(newest, temporary)
    return f"{found} {newest.name} has taken its place."


def damage(checkpoint: Path) -> str:
    """A sentence about damage to the bytes of a checkpoint, "" if there is none."""
    from posnet_fairseq.inference.checkpoints import load_content

    try:
        load_content(checkpoint)
    except DamagedError as error:
        return str(error)
    return ""
