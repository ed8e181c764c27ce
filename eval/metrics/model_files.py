"""Model files of metrics: finding, downloading and identifying them. Does not import torch, which takes seconds."""

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.failures import DISK_FULL
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.shared.records import digest

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "sentencepiece.bpe.model", "spm.model", "vocab.txt",
)  # fmt: skip

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_TIMEOUT = 5  # seconds that the hub may take to answer


class Missing(UsageError):
    """A package or model that a metric needs is missing: what, and how to fix it."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}. {fix}")
        self.what, self.fix = what, fix


@dataclass(frozen=True)
class ModelKind:
    """A kind of model folder."""

    what: str  # name for people, as "a COMET model"
    option: str  # that names the model
    owner: str  # owner on the hub of names without one; "" if such names are the hub's own
    files: tuple[str, ...]  # names of the files that are read if they exist
    needed: tuple[tuple[str, ...], ...]  # groups of file names; one file of each group must exist
    encoder: tuple[str, "ModelKind"] | None = None  # usual name and kind of a model that belongs to it

    def missing_file(self, folder: Path) -> str:
        """Return the first needed file that a folder lacks, as text for people; "" if it has all."""
        lacking = (names for names in self.needed if not any((folder / name).is_file() for name in names))
        return " or ".join(next(lacking, ()))

    def how_to_copy(self, name: str) -> str:
        """Return what to do where the hub cannot be reached, with whatever command."""
        from huggingface_hub.constants import HF_HUB_CACHE

        return (
            f"run huggingface-cli download {name} --include {' '.join(self.files)} where there is network, and copy "
            f"models--{name.replace('/', '--')} from ~/.cache/huggingface/hub there to {HF_HUB_CACHE} here"
            + (f"; for its encoder, {self.encoder[1].how_to_copy(self.encoder[0])}" if self.encoder else "")
        )


def local_folder(given: str) -> Path:
    """Return the path of a model that is given; one of a user who does not exist stays as it is."""
    return Path(os.path.expanduser(given))


def find(given: str, kind: ModelKind, download: bool = True) -> tuple[str, dict[str, Path]]:
    """Return the short name and the files {name: path} of a model, a local folder or a name on the hub."""
    folder = local_folder(given)
    short = shown(folder.resolve().name if folder.is_dir() else given.rpartition("/")[2])
    problem = ""
    if folder.exists():
        missing = kind.missing_file(folder)
        problem = f" is not {kind.what}: there is no {missing} in it" if missing else ""
    elif _HUB_NAME.fullmatch(given):
        folder = _from_hub(given, kind, download)
    else:
        problem = ": there is no such folder"
    if problem:
        raise UsageError(
            f"{given}{problem}. Give {option(kind.option)} a folder that holds "
            f"{', '.join(' or '.join(names) for names in kind.needed)}, or a name on the hub."
        )
    return short, {name: folder / name for name in kind.files if (folder / name).is_file()}


def _from_hub(given: str, kind: ModelKind, download: bool) -> Path:
    """Return the folder of a model in the hub's cache, to which it is downloaded if it is not whole there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import GatedRepoError

    name = f"{kind.owner}/{given}" if kind.owner and "/" not in given else given
    ways: list[dict[str, Any]] = [{"local_files_only": True}, {"etag_timeout": _TIMEOUT}]
    for options in ways if download else ways[:1]:
        try:
            folder = Path(snapshot_download(name, allow_patterns=list(kind.files), **options))
        except (OSError, ValueError) as error:  # those of the network, and of names that the hub cannot have
            if getattr(error, "errno", None) in DISK_FULL:
                raise
            if isinstance(error, GatedRepoError):
                fix = f"Accept its license at https://huggingface.co/{name} and log in with huggingface-cli login."
                raise Missing(f"{name} is for users who have accepted its license", fix) from error
            continue
        # Without network, an interrupted download's part in the cache is returned as if it were whole.
        if not kind.missing_file(folder):
            return folder
    raise Missing(
        f"{name} is neither a local folder nor complete in the Hugging Face cache",
        f"It is downloaded at first use if the hub can be reached and has {kind.what} of this name. Without network, "
        f"{kind.how_to_copy(name)}.",
    )


def content_id(files: Mapping[str, Path]) -> str:
    """Return the first 12 hex digits of a SHA-256 of names and contents of files {name: path}, not of the paths."""
    total = hashlib.sha256()
    for name in sorted(files):
        status = files[name].stat()
        total.update(f"{name} {_digest(files[name], status.st_size, status.st_mtime_ns)}\n".encode())
    return total.hexdigest()[:12]


@functools.lru_cache(maxsize=64)  # every test set asks for the same gigabytes
def _digest(path: Path, size: int, changed: int) -> str:
    return digest(path)
