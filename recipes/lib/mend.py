"""Makes a run that was killed while it saved resume.

fairseq writes numbered checkpoints whole but copies them to checkpoint_last.pt, from which it resumes; a kill during
the copy leaves half a file.
"""

import shutil

from posnet_fairseq.checkpoints import read_checkpoint
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import replacing


def mend(folder):
    """Replace checkpoint_last.pt by the newest other one if it is there and damaged, or remove it if there is none.

    Returns:
        a sentence about it, "" if nothing was done.
    """
    last = folder / "checkpoint_last.pt"
    found = problem(last) if last.exists() else ""
    if not found:
        return ""
    others = sorted(set(folder.glob("checkpoint*.pt")) - {last}, key=lambda path: -path.stat().st_mtime_ns)
    newest = next((path for path in others if not problem(path)), None)
    if newest is None:
        last.unlink()
        return f"{found} There is no other: the training begins again."
    with replacing(last) as temporary:
        shutil.copyfile(newest, temporary)
    return f"{found} {newest.name} has taken its place."


def problem(checkpoint):
    """Why it cannot be read, "" if it can."""
    try:
        read_checkpoint(checkpoint)
    except UsageError as error:
        return str(error)
    return ""
