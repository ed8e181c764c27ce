"""Model files of metrics: finding, downloading and identifying them. Does not import torch, which takes seconds."""

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "sentencepiece.bpe.model", "spm.model", "vocab.txt",
)  # fmt: skip

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TIMEOUT = 5  # seconds that the hub may take to answer


class Missing(UsageError):
    """A package or model that a metric needs is missing.

    Attributes:
        what: what is missing.
        fix: what to do about it.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}. {fix}")
        self.what, self.fix = what, fix


@dataclass(frozen=True)
class ModelKind:
    """A kind of model folder.

    Attributes:
        what: name for people, as "a COMET model".
        flag: option that names the model.
        owner: owner on the hub of names without one; "" if such names are the hub's own.
        files: names of the files that are read if they exist.
        needed: groups of file names; one file of each group must exist.
        include: argument of huggingface-cli's --include that limits the download to what is needed; "" for all.
        encoder: usual name and kind of a model that belongs to it.
    """

    what: str
    flag: str
    owner: str
    files: tuple[str, ...]
    needed: tuple[tuple[str, ...], ...]
    include: str = ""
    encoder: tuple[str, "ModelKind"] | None = None

    def missing_file(self, folder: Path) -> str:
        """Return the first needed file that a folder lacks, as text for people; "" if it has all."""
        for names in self.needed:
            if not any((folder / name).is_file() for name in names):
                return " or ".join(names)
        return ""

    def files_in(self, folder: Path) -> dict[str, Path]:
        """Return {name: path} of the model's files in a folder."""
        return {name: folder / name for name in self.files if (folder / name).is_file()}

    def hub_name(self, name: str) -> str:
        """Return a name on the hub with its owner."""
        return f"{self.owner}/{name}" if self.owner and "/" not in name else name

    def how_to_copy(self, name: str) -> str:
        """Return what to do where the hub cannot be reached, with whatever command."""
        from huggingface_hub.constants import HF_HUB_CACHE

        include = f" --include {self.include}" if self.include else ""
        return (
            f"run huggingface-cli download {name}{include} where there is network, and copy models--"
            f"{name.replace('/', '--')} from ~/.cache/huggingface/hub there to {HF_HUB_CACHE} here"
            + (f"; for its encoder, {self.encoder[1].how_to_copy(self.encoder[0])}" if self.encoder else "")
        )


def find(given: str, kind: ModelKind, download: bool = True) -> Path:
    """Return the folder of a model.

    Args:
        given: local folder or name on the hub, whose local cache is searched first.
        kind: what the folder should hold.
        download: whether the model may be downloaded.

    Raises:
        UsageError: the folder is no such model, or the model is neither here nor can it be downloaded.
    """
    folder = Path(given).expanduser()
    if folder.exists():
        missing = kind.missing_file(folder)
        if missing:
            raise UsageError(
                f"{given} is not {kind.what}: there is no {missing} in it. Give {kind.flag} a folder that holds "
                f"{', '.join(' or '.join(names) for names in kind.needed)}, or a name on the hub."
            )
        return folder
    if not _HUB_NAME.fullmatch(given):
        raise UsageError(
            f"{given}: there is no such folder. Give {kind.flag} a folder that exists, or a name on the hub."
        )
    name = kind.hub_name(given)
    cached = _cached(name, kind)
    if cached:
        return cached
    if not download:
        fix = f"It is fetched when first used, if there is network; else {kind.how_to_copy(name)}."
        raise Missing(f"{name} is not in the hub's cache", fix)
    return _download(name, kind)


def short_name(given: str) -> str:
    """Return the last part of a model's name on the hub or folder."""
    folder = Path(given).expanduser()
    return folder.resolve().name if folder.is_dir() else given.rpartition("/")[2]


def absolute_name(given: str) -> str:
    """Return a model's name on the hub or absolute folder, which does not depend on the working directory."""
    folder = Path(given).expanduser()
    return str(folder.resolve()) if folder.is_dir() else given


def content_id(files: Mapping[str, Path]) -> str:
    """Return the first 12 hex digits of a SHA-256 of names and contents of files.

    Args:
        files: {name: path}; the paths do not enter the hash.
    """
    total = hashlib.sha256()
    for name in sorted(files):
        status = files[name].stat()
        total.update(f"{name} {_digest(files[name], status.st_size, status.st_mtime_ns)}\n".encode())
    return total.hexdigest()[:12]


@functools.lru_cache(maxsize=64)  # every test set asks for the same gigabytes
def _digest(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached(name: str, kind: ModelKind) -> Path | None:
    """Return a model's folder in the hub's cache, None if it is missing or incomplete."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise UsageError(f"{name} is no name of the hub, nor a folder. Check {kind.flag}.") from error
    return None if kind.missing_file(folder) else folder


def _download(name: str, kind: ModelKind) -> Path:
    """Download a model into the hub's cache and return its folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(kind.files), etag_timeout=_TIMEOUT))
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{name}: the hub shows no model of this name. Check {kind.flag}, or log in (huggingface-cli login) if it "
            "is not for everyone."
        ) from error
    except OSError as error:  # errors of the network are among them
        if error.errno in DISK_FULL:
            raise
        raise Missing(
            f"{name} is neither a folder here nor in the hub's cache, and the hub cannot be reached",
            f"To copy it here, {kind.how_to_copy(name)}.",
        ) from error
    missing = kind.missing_file(folder)
    if missing:
        # Without network, an interrupted download's part in the cache is returned as if it were whole.
        raise Missing(
            f"{name} as fetched to {folder} is not {kind.what}: there is no {missing} in it",
            f"If the hub cannot be reached from here, {kind.how_to_copy(name)}.",
        )
    return folder
