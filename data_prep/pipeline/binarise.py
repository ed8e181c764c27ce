"""fairseq's binary form of a text."""

import contextlib
import logging
import threading

from fairseq import options
from fairseq_cli import preprocess

from posnet_fairseq.fairseq_plugin import repairs as compat

SETS = ("train", "valid", "test")


def binarise(folder, prefixes, languages, joined, workers, bar):
    """Run fairseq-preprocess.

    Args:
        folder: where its files go.
        prefixes: dict from a set to the path of its text, without language.
        languages: of source and target; none, if a path names the one text there is.
        joined: one dictionary for both languages.
        workers: processors to use.
        bar: shows progress in bytes.
    """
    for left in folder.glob("*"):  # by an interrupted run
        if left.name != "key":
            left.unlink()
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1]] if languages else ["--only-source"]
    arguments += ["--joined-dictionary"] if joined else []
    # Its workers end before it does the first part itself; with more parts there is less to wait for.
    parts = 2 * workers if workers > 1 else 1
    arguments += ["--destdir", str(folder), "--workers", str(parts)]
    for name, prefix in prefixes.items():
        arguments += [f"--{name}pref", str(prefix)]
    logging.getLogger("fairseq_cli.preprocess").propagate = False  # it keeps its own preprocess.log
    compat.merge_large_indexes()
    with _watching(folder, bar):
        preprocess.main(options.get_preprocessing_parser().parse_args(arguments))
    (folder / "preprocess.log").unlink()  # dates and paths, different every time


@contextlib.contextmanager
def _watching(folder, bar):
    """Move the bar as the binary files grow."""
    ended = threading.Event()

    def watch():
        while not ended.wait(0.5):
            bar.move_to(_bytes(folder))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    bar.move_to(_bytes(folder))


def _bytes(folder):
    total = 0
    for path in folder.glob("*.bin"):
        with contextlib.suppress(FileNotFoundError):  # parts come and go
            total += path.stat().st_size
    return total
