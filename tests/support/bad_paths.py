"""Every way in which a path can be bad, by the kind of path: those of inputs and those of outputs."""

import os
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


def nothing(folder):
    pass


# Bad paths, functions of the path that is given: (path, what is made first, what is there afterwards if it works, else
# False).


def missing(given):
    return "nowhere/nothing", nothing, False


def empty(given):
    return "", nothing, False


def with_a_NUL(given):
    return "a\0b", nothing, False


def too_long(given):
    return "x" * 300, nothing, False


def a_folder(given):
    return "text", nothing, False


def a_file(given):
    return "text/test.xx", nothing, False


def below_a_file(given):
    return "text/test.xx/nothing", nothing, False


def loop(given):
    return "loop", lambda folder: (folder / "loop").symlink_to("loop"), False


def dangling(given):
    return "dangling", lambda folder: (folder / "dangling").symlink_to("nothing"), False


def link(given):
    return "link", lambda folder: (folder / "link").symlink_to(given.good), True


def unreadable(given):
    return "/proc/self/mem", nothing, False


def device(given):
    return "null", lambda folder: node(folder / "null", 3), False


def pipe(given):
    """A pipe without a writer, on which a command must not wait."""
    return "pipe", lambda folder: os.mkfifo(folder / "pipe"), False


def fed_pipe(given):
    return "pipe", lambda folder: fed(folder / "pipe", (folder / given.good).read_bytes()), True


def with_a_slash(given):
    return f"{given.good}/", nothing, True


def link_to_a_file(given):
    def make(folder):
        (folder / "old").write_text("old")
        (folder / "link").symlink_to("old")

    return "link", make, ("old",)


def link_to_nothing(given):
    return "link", lambda folder: (folder / "link").symlink_to("target"), ("target",)


def link_to_nowhere(given):
    return "link", lambda folder: (folder / "link").symlink_to("no/target"), False


def null_device(given):
    return "null", lambda folder: node(folder / "null", 3), ()


def full_device(given):
    return "full", lambda folder: node(folder / "full", 7), False


def read_pipe(given):
    return "pipe", lambda folder: drained(folder / "pipe"), ("received",)


def open_file(given):
    return "/dev/fd/2", nothing, ()


def closed_file(given):
    return "/dev/fd/987", nothing, False


def in_proc(given):
    return "/proc/nothing", nothing, False


def in_sys(given):
    return "/sys/nothing", nothing, False


def ending_in_a_slash(given):
    return "new/", nothing, False


def name_of_250(given):
    return "y" * 250, nothing, ("y" * 250,)


def old_file(given):
    return "old", lambda folder: (folder / "old").write_text("old"), ("old",)


def picture_of_another(given):
    def make(folder):
        (folder / "mine.png").write_bytes(b"\x89PNG, mine")

    return "mine", make, False


def folder_of_another(given):
    """A folder with files of every name that a command writes, which posnet did not write."""

    def make(folder):
        (folder / "mine").mkdir()
        names = ("report.md", "report.json", "compare.params.png", "weights.html", "dataset.json", "convergence.md")
        for name in names:
            (folder / "mine" / name).write_text("mine")

    return "mine", make, False


def link_to_a_folder(given):
    def make(folder):
        (folder / "real").mkdir()
        (folder / "link").symlink_to("real")

    return "link", make, ("real/*",)


_ANY = [empty, with_a_NUL, too_long, loop]
_READ = [missing, *_ANY, dangling, below_a_file]
INPUTS = {
    CHECKPOINT: [*_READ, a_folder, unreadable, device, pipe, link],
    FILE: [*_READ, a_folder, device, pipe, link],
    TEXT: [*_READ, a_folder, unreadable, fed_pipe, link],
    FOLDER: [*_READ, a_file, device, pipe, link, with_a_slash],
}
_FOLDERS = [*_ANY, dangling, a_file, below_a_file, device, pipe, in_proc, in_sys]
OUTPUTS = {
    OUTPUT: [
        *(missing, *_ANY, a_folder, below_a_file, link_to_nowhere, full_device, closed_file, in_proc, in_sys),
        *(ending_in_a_slash, link_to_a_file, link_to_nothing, null_device, read_pipe, open_file, name_of_250, old_file),
    ],
    PICTURE: [
        missing,
        empty,
        with_a_NUL,
        too_long,
        below_a_file,
        in_proc,
        in_sys,
        ending_in_a_slash,
        picture_of_another,
    ],
    NEW_FOLDER: [missing, *_FOLDERS, a_folder],
    OUTPUT_FOLDER: [*_FOLDERS, folder_of_another, link_to_a_folder],
    DOWNLOADS: [*_FOLDERS, link_to_a_folder],
    CACHE: [*_ANY, a_folder, a_file, below_a_file, device, pipe, in_proc, in_sys],
}
