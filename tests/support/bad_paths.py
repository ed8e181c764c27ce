"""Every way in which a path can be bad, by the kind of path: those of inputs and those of outputs."""

import os
import shutil
import stat
import threading

import pytest

from support.path_commands import (
    CACHE,
    CHECKPOINT,
    DOWNLOADS,
    FILE,
    FOLDER,
    NEW_FOLDER,
    OUTPUT,
    OUTPUT_FOLDER,
    PICTURE,
    TEXT,
)


def node(path, number):
    """Make a device: 3 is /dev/null, 7 is /dev/full."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, number))
        path.open("rb").close()
    except PermissionError:
        pytest.skip("devices cannot be made here")


def fed(path, content):
    """A pipe with a writer."""
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()


def drained(path):
    """A pipe with a reader, which writes what it reads to a file beside the pipe."""
    os.mkfifo(path)

    def read():
        path.with_name("received").write_bytes(path.read_bytes())

    threading.Thread(target=read, name="reader", daemon=True).start()


def nothing(folder, good=None):
    pass


def link(name, target="{good}"):
    """A path, and what makes it a symbolic link."""
    return name, lambda folder, good: (folder / name).symlink_to(target.format(good=good))


def _old(folder, good):
    """A checkpoint that posnet-average made, which all commands may replace."""
    shutil.copy(folder / "model.pt", folder / "old")


def _old_and_link(folder, good):
    _old(folder, good)
    (folder / "link").symlink_to("old")


def _linked_folder(folder, good):
    (folder / "real").mkdir()
    (folder / "link").symlink_to("real")


def _of_another(folder, good):
    """A folder with files of every name that a command writes, which posnet did not write."""
    (folder / "mine").mkdir()
    names = ("report.md", "report.json", "compare.params.png", "weights.html", "dataset.json", "convergence.md")
    for name in names:
        (folder / "mine" / name).write_text("mine")


RAW = os.fsdecode(b"\xff\xfe")
_NULL = "null", lambda folder, good: node(folder / "null", 3)
# {name: (path, what is made first, what is there afterwards if it works, else False)}. {good} stands for a good path.
BAD = {
    "missing": ("nowhere/nothing", nothing, False),
    "empty": ("", nothing, False),
    "with a NUL": ("a\0b", nothing, False),
    "too long": ("x" * 300, nothing, False),
    "a folder": ("text", nothing, False),
    "a file": ("text/test.xx", nothing, False),
    "below a file": ("text/test.xx/nothing", nothing, False),
    "loop": (*link("loop", "loop"), False),
    "dangling": (*link("dangling", "nothing"), False),
    "link": (*link("link"), True),
    "unreadable": ("/proc/self/mem", nothing, False),
    "device": (*_NULL, False),
    # A pipe without a writer, on which a command must not wait.
    "pipe": ("pipe", lambda folder, good: os.mkfifo(folder / "pipe"), False),
    "fed pipe": ("pipe", lambda folder, good: fed(folder / "pipe", (folder / good).read_bytes()), True),
    "with a slash": ("{good}/", nothing, True),
    "link to a file": ("link", _old_and_link, ("old",)),
    "link to nothing": (*link("link", "target"), ("target",)),
    "link to nowhere": (*link("link", "no/target"), False),
    "null device": (*_NULL, ()),
    "full device": ("full", lambda folder, good: node(folder / "full", 7), False),
    "read pipe": ("pipe", lambda folder, good: drained(folder / "pipe"), ("received",)),
    "open file": ("/dev/fd/2", nothing, ()),
    "closed file": ("/dev/fd/987", nothing, False),
    "in proc": ("/proc/nothing", nothing, False),
    "in sys": ("/sys/nothing", nothing, False),
    "ending in a slash": ("new/", nothing, False),
    "name of 250": ("y" * 250, nothing, ("y" * 250,)),
    "old file": ("old", _old, ("old",)),
    "picture of another": ("mine", lambda folder, good: (folder / "mine.png").write_bytes(b"\x89PNG, mine"), False),
    "folder of another": ("mine", _of_another, False),
    "link to a folder": ("link", _linked_folder, ("real/*",)),
    "input that is not UTF-8": (*link(RAW), True),
    "output that is not UTF-8": (RAW, nothing, (RAW,)),
    "folder that is not UTF-8": (RAW, nothing, (RAW, f"{RAW}/*")),
    "two lines": ("a\nb", nothing, ("a\nb",)),
}
_ANY = ("empty", "with a NUL", "too long", "loop")
_READ = ("missing", *_ANY, "dangling", "below a file")
INPUTS = {
    CHECKPOINT: (*_READ, "a folder", "unreadable", "device", "pipe", "link", "input that is not UTF-8"),
    FILE: (*_READ, "a folder", "device", "pipe", "link", "input that is not UTF-8"),
    TEXT: (*_READ, "a folder", "unreadable", "fed pipe", "link", "input that is not UTF-8"),
    FOLDER: (*_READ, "a file", "device", "pipe", "link", "with a slash", "input that is not UTF-8"),
}
_FOLDERS = (*_ANY, "dangling", "a file", "below a file", "device", "pipe", "in proc", "in sys")
OUTPUTS = {
    OUTPUT: (
        *("missing", *_ANY, "a folder", "below a file", "link to nowhere", "full device", "closed file", "in proc"),
        *("in sys", "ending in a slash", "link to a file", "link to nothing", "null device", "read pipe", "open file"),
        *("name of 250", "old file", "output that is not UTF-8", "two lines"),
    ),
    PICTURE: (
        *("missing", "empty", "with a NUL", "too long", "below a file", "in proc", "in sys", "ending in a slash"),
        "picture of another",
    ),
    NEW_FOLDER: ("missing", *_FOLDERS, "a folder", "folder that is not UTF-8"),
    OUTPUT_FOLDER: (*_FOLDERS, "folder of another", "link to a folder", "folder that is not UTF-8"),
    DOWNLOADS: (*_FOLDERS, "link to a folder"),
    CACHE: (*_ANY, "a folder", "a file", "below a file", "device", "pipe", "in proc", "in sys"),
}
