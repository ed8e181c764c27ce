"""One process of a training on several: torchrun ... rank.py, then the arguments of fairseq-train.

torchrun tells each process its rank. fairseq could read it by itself, but only where there are GPUs. The script and its
neighbor stand in a folder of their own, which Python puts in front of sys.path.
"""

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

# Without this, a process would outlive torchrun if that is killed. It comes before imports that take seconds.
# (posnet_fairseq.shared.processes has a function for it, but fairseq registers no --user-dir that was imported before.)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
# torchrun may have been killed before. It names this file among its arguments; the process that adopts orphans does
# not. (Its number says nothing: in a container, torchrun itself may be process 1.)
if os.fsencode(sys.argv[0]) not in Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0"):
    sys.exit("rank.py: error: torchrun, which started this, has ended.")

# By its path, so that posnet is not imported.
runpy.run_path(str(Path(__file__).parents[2] / "fairseq_plugin/optional_types.py"))["repair"]()

from fairseq_cli.train import cli_main  # noqa: E402
from machines import agreed_arguments  # noqa: E402

if os.environ["GROUP_WORLD_SIZE"] != "1":
    given = sys.argv[1:]
    try:
        sys.argv[1:] = agreed_arguments(given)
    except ValueError as error:
        sys.exit(f"rank.py: error: {error}")
    more = sys.argv[len(given) + 1 :]
    if more and os.environ["LOCAL_RANK"] == "0":
        print(f"rank.py: with {' '.join(more)}, as the first machine has found to be right", file=sys.stderr)
sys.argv[0] = "fairseq-train"
sys.argv += ["--distributed-init-method", "env://", "--distributed-no-spawn"]
sys.argv += ["--distributed-rank", os.environ["RANK"], "--distributed-world-size", os.environ["WORLD_SIZE"]]
sys.argv += ["--device-id", os.environ["LOCAL_RANK"]]
cli_main()
