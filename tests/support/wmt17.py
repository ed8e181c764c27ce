"""Real outputs to measure and test with: the systems of WMT17's news task, English to German.

sacreBLEU's source distribution has them among its own tests, 16 systems and the reference, 3,004 lines each.
"""

import bz2
import pickle
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.files import cache_folder

SYSTEMS = 16


def outputs() -> tuple[list[str], dict[str, list[str]]]:
    """Reference and outputs, downloaded when they are first needed.

    Returns:
        The lines of the reference, and a dict from system to lines, in the order of sacreBLEU's tests, whose baseline
        is the first.

    Raises:
        UsageError: the package index is out of reach.
    """
    archive = cache_folder() / f"sacrebleu-{version('sacrebleu')}.tar.gz"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            package = f"sacrebleu=={version('sacrebleu')}"
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "sacrebleu", package]
            done = subprocess.run([*pip, "--dest", folder], capture_output=True, text=True)
            if done.returncode:
                raise UsageError(
                    f"{package} cannot be downloaded ({done.stderr.strip().splitlines()[-1:]}). Check the network."
                )
            next(Path(folder).glob("*.tar.gz")).replace(archive)
    with tarfile.open(archive) as tar:
        (name,) = [name for name in tar.getnames() if name.endswith("wmt17_en_de_systems.pkl.bz2")]
        member = tar.extractfile(name)
        assert member is not None, "a file, not a folder"
        with bz2.open(member) as file:
            systems = _PlainData(file).load()
    _, (reference,) = systems.pop()
    return list(reference), {name.split(".")[1]: list(lines) for name, lines in systems}


class _PlainData(pickle.Unpickler):
    """Reads lists and strings, and nothing that runs code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse all classes and functions."""
        raise pickle.UnpicklingError(f"{module}.{name}")
