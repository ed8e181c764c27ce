"""A folder of the user's own that registers mixers, as fairseq's ``--user-dir`` imports one."""

import importlib
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from posnet_fairseq.shared.errors import UsageError

imported: list[str] = []  # folders that import_user_dir has imported


def import_user_dir(folder: str | Path) -> None:
    """Import the package in a folder, once, as fairseq does."""
    path = Path(folder).absolute()
    if not (path / "__init__.py").is_file():
        raise UsageError(f"--user-dir {folder}: it has no __init__.py. Give the folder of a package that has mixers.")
    if "." in path.name:
        raise UsageError(f"--user-dir {folder}: a package has no period in its name. Rename the folder.")
    if path.name not in sys.modules:
        sys.path.insert(0, str(path.parent))
        importlib.import_module(path.name)
        logging.getLogger().setLevel(logging.WARNING)  # importing fairseq has lowered it
        imported.append(str(path))
    elif str(path) not in getattr(sys.modules[path.name], "__path__", ()):
        raise UsageError(f"--user-dir {folder}: another module is called {path.name}. Rename the folder.")


class UserDirs:
    """Folders that this process has imported. Unpickle it before what needs their mixers: that imports them."""

    def __reduce__(self) -> tuple[Callable[[Iterable[str]], None], tuple[list[str]]]:
        return _import_all, (imported,)


def _import_all(folders: Iterable[str]) -> None:
    for folder in folders:
        import_user_dir(folder)
