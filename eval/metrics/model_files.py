"""Models of metrics on disk: where they are and what is in them. Without torch, whose import takes seconds."""

import functools
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import DISK_FULL

TOKENIZER = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "sentencepiece.bpe.model", "spm.model", "vocab.txt",
)  # fmt: skip

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SECONDS = 5  # that the hub may take to answer


class Missing(UsageError):
    """Something a metric needs is not here.

    Attributes:
        what: what it is.
        mend: what to do.
    """

    def __init__(self, what, mend):
        super().__init__(f"{what}. {mend}")
        self.what, self.mend = what, mend


@dataclass(frozen=True)
class Kind:
    """A kind of model folder.

    Attributes:
        what: it is called, as "COMET's model".
        flag: the option that names it.
        owner: on the hub, of names without one; "" if such names are the hub's own.
        files: that are read if they are there.
        needed: tuples of them; of each, one must be there.
        include: what to tell huggingface-cli so that it downloads no more than needed; "" for all.
    """

    what: str
    flag: str
    owner: str
    files: tuple[str, ...]
    needed: tuple[tuple[str, ...], ...]
    include: str = ""

    def lacking(self, folder):
        """The first needed file that a folder has not, as text for people, or ""."""
        for names in self.needed:
            if not any((folder / name).is_file() for name in names):
                return " or ".join(names)
        return ""

    def present(self, folder):
        """{name: path} of the files in a folder."""
        return {name: folder / name for name in self.files if (folder / name).is_file()}

    def hub_name(self, given):
        """A name with its owner."""
        return f"{self.owner}/{given}" if self.owner and "/" not in given else given

    def how_to_bring(self, name):
        """What to do where the hub is out of reach."""
        include = f" --include {self.include}" if self.include else ""
        return (
            f"run huggingface-cli download {name}{include} --local-dir DIR where there is network, copy DIR here and "
            f"give {self.flag} DIR"
        )


def find(given, kind, also="", download=True):
    """The folder of a model.

    Args:
        given: a local folder or a name on the hub, whose cache is looked into first.
        kind: what it should hold.
        also: the end of the sentence on how to bring a model here, if there is more to bring.
        download: whether the network may be asked.

    Raises:
        UsageError: it is no such model, or not here and not to be had.
    """
    folder = Path(given).expanduser()
    if folder.exists():
        lacking = kind.lacking(folder)
        if lacking:
            raise UsageError(
                f"{given} is not {kind.what}: there is no {lacking} in it. Give {kind.flag} a folder that holds "
                f"{', '.join(' or '.join(names) for names in kind.needed)}, or a name on the hub."
            )
        return folder
    if not _HUB_NAME.fullmatch(given):
        raise UsageError(f"{given}: there is no such folder. Give {kind.flag} a folder that is there, or a hub name.")
    name = kind.hub_name(given)
    folder = _cached(name, kind)
    if folder:
        return folder
    if not download:
        mend = f"It is fetched when first used, if there is network; else {kind.how_to_bring(name)}{also}."
        raise Missing(f"{name} is not in the hub's cache", mend)
    return _download(name, kind, also)


def short_name(given):
    """What a model is called: the last part of its hub name or folder."""
    folder = Path(given).expanduser()
    return folder.resolve().name if folder.is_dir() else given.rpartition("/")[2]


def as_given(given):
    """A model as the user named it; folders in full, so that the name means the same in every working directory."""
    folder = Path(given).expanduser()
    return str(folder.resolve()) if folder.is_dir() else given


def content_id(files):
    """The first 12 hex digits of a hash of the content of files.

    Args:
        files: {name: path}; the names count, the folders they are in do not.
    """
    total = hashlib.sha256()
    for name in sorted(files):
        status = files[name].stat()
        total.update(f"{name} {_digest(files[name], status.st_size, status.st_mtime_ns)}\n".encode())
    return total.hexdigest()[:12]


@functools.lru_cache(maxsize=64)  # every test set asks for the same gigabytes
def _digest(path, size, changed):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cached(name, kind):
    """A model's folder in the hub's cache, None if it is not there or not complete."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise UsageError(f"{name} is no name of the hub, nor a folder. Check {kind.flag}.") from error
    return None if kind.lacking(folder) else folder


def _download(name, kind, also):
    """Fetch a model into the hub's cache and return its folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(kind.files), etag_timeout=_SECONDS))
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"{name}: the hub shows no model of this name. Check {kind.flag}, or log in (huggingface-cli login) if it "
            "is not for everyone."
        ) from error
    except OSError as error:  # of which the errors of the network are a kind
        if error.errno in DISK_FULL:
            raise
        raise Missing(
            f"{name} is neither a folder here nor in the hub's cache, and the hub cannot be reached",
            f"To bring it here, {kind.how_to_bring(name)}{also}.",
        ) from error
    lacking = kind.lacking(folder)
    if lacking:
        # Without network, what a download that was broken off has left in the cache comes back as if it were whole.
        raise Missing(
            f"{name} as fetched to {folder} is not {kind.what}: there is no {lacking} in it",
            f"If the hub cannot be reached from here, {kind.how_to_bring(name)}{also}; else give another {kind.flag}.",
        )
    return folder
