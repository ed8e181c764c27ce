"""Repairs of fairseq 0.12.3 where its import fails, before ``--user-dir`` could repair it.

Python 3.14 writes the type ``Optional[str]`` as ``str | None``, and fairseq reads types of options from their texts.
fairseq's debugger makes a lock of processes, which needs a /dev/shm that can be written.

``python -P optional_types.py fairseq-train ...`` runs a command of fairseq repaired. The script imports nothing of
posnet: fairseq registers no ``--user-dir`` that has been imported. Remove it when fairseq uses ``typing.get_args`` and
makes the lock when it needs it.
"""

import argparse
import importlib.metadata
import importlib.util
import logging
import multiprocessing
import sys
import threading
import types
import typing
from importlib.machinery import SourceFileLoader
from pathlib import Path
from unittest import mock


def repair() -> None:
    """Import what fairseq's import would fail at; elsewhere do nothing.

    Without /dev/shm that is its debugger, with a lock of threads; on Python 3.14 fairseq, its module that reads types
    first.
    """
    spec = importlib.util.find_spec("fairseq")
    if "fairseq" in sys.modules or spec is None or spec.loader is None or spec.origin is None:
        return
    try:
        multiprocessing.get_context("fork").Lock()
    except OSError:
        name = "fairseq.pdb"
        sys.modules[name] = debugger = types.ModuleType(name)
        with mock.patch.object(multiprocessing, "Lock", threading.Lock):
            SourceFileLoader(name, str(Path(spec.origin).with_name("pdb.py"))).exec_module(debugger)
    if sys.version_info < (3, 14):
        return
    handlers = logging.root.handlers[:]  # fairseq's commands set up logging before they import the rest of it
    sys.modules["fairseq"] = package = importlib.util.module_from_spec(spec)
    try:
        utils = importlib.import_module("fairseq.dataclass.utils")
        read = utils.interpret_dc_type

        def read_optional(kind: typing.Any) -> typing.Any:
            arguments = typing.get_args(kind)
            return arguments[0] if type(None) in arguments else read(kind)

        vars(utils)["interpret_dc_type"] = read_optional
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules["fairseq"]
        raise
    logging.root.handlers[:] = handlers


if __name__ in ("__main__", "__mp_main__"):  # the latter is that of worker processes
    repair()
if __name__ == "__main__":
    # Hydra gives its parser a help that is no text, which Python 3.14 refuses when it checks that.
    setattr(argparse.ArgumentParser, "_check_help", lambda *_: None)  # noqa: B010
    del sys.argv[0]
    (command,) = importlib.metadata.entry_points(group="console_scripts", name=sys.argv[0])
    command.load()()
