"""A repair of fairseq 0.12.3 on Python 3.14, where the type ``Optional[str]`` is written ``str | None``.

fairseq reads types of options from their texts and fails while it is imported, before ``--user-dir`` could repair it.
``python -P optional_types.py fairseq-train ...`` runs a command of fairseq repaired. The script imports nothing of
posnet: fairseq registers no ``--user-dir`` that has been imported. Remove it when fairseq uses ``typing.get_args``.
"""

import argparse
import importlib.metadata
import importlib.util
import logging
import sys
import typing


def repair() -> None:
    """Import fairseq on Python 3.14, its module that reads types first; elsewhere do nothing."""
    spec = importlib.util.find_spec("fairseq")
    if sys.version_info < (3, 14) or "fairseq" in sys.modules or spec is None or spec.loader is None:
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
