"""One process of a training on several: torchrun ... recipes/lib/rank.py, then the arguments of fairseq-train.

torchrun tells each process who it is. fairseq could read that by itself, but only where there are GPUs.
"""

import ctypes
import os
import signal
import sys

# Without this, a process would outlive torchrun if that is killed. (posnet_fairseq.processes has a function for it, but
# fairseq does not register a --user-dir that has been imported before.) It comes before imports that take seconds.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == 1:
    sys.exit(1)

from fairseq_cli.train import cli_main  # noqa: E402

sys.argv[0] = "fairseq-train"
sys.argv += ["--distributed-init-method", "env://", "--distributed-no-spawn"]
sys.argv += ["--distributed-rank", os.environ["RANK"], "--distributed-world-size", os.environ["WORLD_SIZE"]]
sys.argv += ["--device-id", os.environ["LOCAL_RANK"]]
cli_main()
