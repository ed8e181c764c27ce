"""Package descriptions by way of apt, in folders of their own: nothing of the machine's apt is changed."""

import os
import shutil
import subprocess
from pathlib import Path

from posnet_data_prep.sources.archives import Archive
from posnet_data_prep.sources.transfer import RefusedError
from posnet_fairseq.shared.errors import UsageError

# apt's own program that decompresses whatever apt has compressed
HELPER = Path("/usr/lib/apt/apt-helper")
_LZ4 = b"\x04\x22\x4d\x18"
_CONTENT_CHECKSUM = 4  # a flag of the byte after that


def download_index(index: Archive, path: Path) -> None:
    """Download an index with ``apt-get update``, from the Debian mirror that this machine's apt uses.

    apt's folder beside the file is kept until the index is whole: an interrupted download continues.
    """
    if shutil.which("apt-get") is None:
        raise RefusedError("this machine has no apt-get")
    _, suite, component, _, ending = index.name.split("_", 4)
    language = ending.removeprefix("Translation-")
    folder = path.with_suffix(".apt").absolute()
    lists, sources = folder / "lists", folder / "sources.list"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    sources.write_text(f"deb {_mirror()} {suite} {component}\n", encoding="utf-8")
    options = {
        "Dir::State": folder,
        "Dir::State::lists": lists,
        "Dir::Cache": folder,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Acquire::Languages": language,
        "Acquire::GzipIndexes": "false",
        "Acquire::IndexTargets::deb::Packages::DefaultEnabled": "false",
        "APT::Sandbox::User": "",  # another user could not write here
        "APT::Update::Error-Mode": "any",
    }
    _apt_get("update", *(f"--option={name}={value}" for name, value in options.items()))
    found = next((file for file in lists.iterdir() if index.is_named(file.name)), None)
    if found is None:
        raise RefusedError(f"{suite} has no descriptions in the language {language}")
    found.replace(path)
    shutil.rmtree(folder)


def _mirror() -> str:
    """Return the address of the Debian mirror among the sources of this machine."""
    for address in _apt_get("indextargets", "--format", "$(REPO_URI)").split():
        if address.rstrip("/").endswith("/debian"):
            return address
    raise RefusedError("its sources have no mirror of Debian")


def _apt_get(*arguments: str) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        errors = [line[2:].strip() for line in lines if line.startswith(("E:", "W:"))]
        raise RefusedError((errors or lines or ["apt-get gave no reason"])[0].rstrip("."))
    return done.stdout


def decompress_lz4(path: Path, target: Path) -> Path:
    """Return a file, decompressed into another one if apt has compressed it by lz4, which Python cannot read."""
    with open(path, "rb") as file:
        start = file.read(len(_LZ4) + 1)
        if not start.startswith(_LZ4):
            return path
        file.seek(max(0, path.stat().st_size - 8))
        end = file.read()
    # apt does not notice that a frame is cut short: its end is four zeros, and a checksum if there is one.
    whole = (end[:4] if start[-1] & _CONTENT_CHECKSUM else end[4:]) == bytes(4)
    with open(target, "wb") as output:
        if whole and HELPER.exists():
            whole = subprocess.run([HELPER, "cat-file", path], stdout=output, stderr=subprocess.PIPE).returncode == 0
    if not whole or not HELPER.exists():
        reason = "this machine has no apt to read it. Decompress it with lz4 -d" if whole else "damaged. Copy it again"
        raise UsageError(f"{path} is compressed by lz4, and {reason}.")
    return target
