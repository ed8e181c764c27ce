"""python recipes/mend_last_checkpoint.py SAVE_DIR: makes a run that was killed while it saved resume.

fairseq writes numbered checkpoints whole but copies them to checkpoint_last.pt, from which it resumes; a kill during
the copy leaves half a file. The newest numbered checkpoint takes its place.
"""

import shutil
import sys
from pathlib import Path

from posnet_fairseq.checkpoints import read_checkpoint
from posnet_fairseq.cli._run import command
from posnet_fairseq.cli.average import candidates
from posnet_fairseq.errors import UsageError
from posnet_fairseq.files import replacing


@command
def main(arguments=None):
    """Replace SAVE_DIR/checkpoint_last.pt if it is there and damaged."""
    (folder,) = map(Path, arguments or sys.argv[1:])
    last = folder / "checkpoint_last.pt"
    if not last.exists():
        return
    try:
        read_checkpoint(last)
    except UsageError as error:
        newest = candidates(folder)[-1].path
        with replacing(last) as temporary:
            shutil.copyfile(newest, temporary)
        print(f"{error} It was replaced by {newest.name}.", file=sys.stderr)


if __name__ == "__main__":
    main()
