"""One process of a training on several: torchrun ... recipes/lib/rank.py, then the arguments of fairseq-train.

torchrun tells each process who it is. fairseq could read that by itself, but only where there are GPUs.
"""

import ctypes
import os
import signal
import sys

from fairseq_cli.train import cli_main

# Without this, a process would outlive torchrun if that is killed. (posnet_fairseq.processes has a function for it, but
# fairseq does not register a --user-dir that has been imported before.)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
sys.argv[0] = "fairseq-train"
sys.argv += ["--distributed-init-method", "env://", "--distributed-no-spawn"]
sys.argv += ["--distributed-rank", os.environ["RANK"], "--distributed-world-size", os.environ["WORLD_SIZE"]]
sys.argv += ["--device-id", os.environ["LOCAL_RANK"]]
cli_main()
