"""Settings of runs, each declared once: command-line flags, keys of a YAML file and environment variables follow.

A setting is a field of a dataclass made by :func:`setting`. Values are text until they are parsed, wherever they come
from, so that ``7e-4`` reaches fairseq-train as it was written.
"""

import argparse
import dataclasses
import difflib
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

from posnet_fairseq.runs.values import Parse, nearest
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.schema import read_yaml

# Names of environment variables that other programs have, close to those of settings.
USUAL_VARIABLES = frozenset({"CPU", "FNAME", "HNAME", "JOB", "LNAME", "NODE", "TOKEN", "UNAME"})


def recipe() -> Path | None:
    """The script in recipes/ that started this process, None if posnet-run was typed.

    Recipes take environment variables, so sentences speak of ``SIZE=huge`` where they else do of ``--size huge``, and
    folders lie in their checkout, wherever they are called from.
    """
    script = os.environ.get("POSNET_RECIPE")
    return Path(script) if script else None


def root() -> Path:
    """The folder of ``data`` and ``runs``: a recipe's checkout, else the working directory."""
    script = recipe()
    return script.parent.parent if script else Path.cwd()


def setting(
    help: str, default: Any = None, parse: Parse = str, *, positional: str = "", metavar: str | None = None
) -> Any:
    """A field of a :class:`Settings`.

    Args:
        help: its line in ``--help``.
        default: parsed value where none is given.
        parse: function from text to a value; raises ValueError with what is allowed, as the end of a sentence, and
            before that, if it is not the whole text, with the part that is not allowed.
        positional: argparse's ``nargs`` of a setting that is no flag but words, and has no variable. Its text has NUL
            between the words.
        metavar: name of its value in ``--help``.
    """
    metadata = {"help": help, "parse": parse, "positional": positional, "metavar": metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of the settings of runs, comparisons and others."""

    VARIABLES: ClassVar[str] = ""  # beginning of the names of its environment variables

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """Its settings by name."""
        return {each.name: each for each in dataclasses.fields(cls)}

    @classmethod
    def called(cls, name: str) -> str:
        """The name of a setting for the person who gave it: ``SIZE`` or ``--size``."""
        if cls.fields()[name].metadata["positional"]:
            return name.upper()
        return cls.VARIABLES + name.upper() if recipe() else flag(name)

    @classmethod
    def given(cls, name: str, value: object) -> str:
        """A setting with its value, for the person who gave it: ``SIZE=huge`` or ``--size huge``."""
        return f"{cls.called(name)}{'=' if recipe() else ' '}{value}"

    @classmethod
    def refuse(cls, name: str, value: object, reason: str) -> NoReturn:
        """Raise a :class:`UsageError` that names the setting, what was given and what is allowed."""
        raise UsageError(f"{cls.given(name, value)}: {reason}")

    @classmethod
    def parsed(cls, texts: Mapping[str, str]) -> Self:
        """Settings from texts; an empty text counts as not given.

        Raises:
            UsageError: one is not what it may be.
        """
        values, fields = {}, cls.fields()
        for name, text in cls.completed({name: text for name, text in texts.items() if text != ""}).items():
            try:
                values[name] = fields[name].metadata["parse"](text)
            except ValueError as error:
                if fields[name].metadata["positional"]:
                    raise UsageError(str(error)) from error
                *part, reason = error.args
                cls.refuse(name, part[0] if part else text, reason)
        made = cls(**values)
        made.check()
        return made

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """The texts, with defaults that depend on other settings."""
        return texts

    def check(self) -> None:
        """Refuse settings that do not fit together.

        Raises:
            UsageError: they do not.
        """

    @classmethod
    def read(cls, target: str, words: Sequence[str], description: str, given: Mapping[str, str] | None = None) -> Self:
        """Settings from a command line, else its --config, else (in recipes) the environment, else `given`.

        Args:
            target: first word of the command line.
            words: the others.
            description: for ``--help``.
            given: defaults that the target has.

        Raises:
            UsageError: an option is unknown, or has a value that it may not have; or a recipe's environment has a
                variable whose name is almost that of a setting.
        """
        flags = cls._flags(target, words, description)
        if recipe():
            cls._refuse_misspelt(target)
        path = flags.pop("config", "")
        texts = dict(given or {}) | (cls.environment() if recipe() else {})
        return cls.parsed(texts | (cls._of_file(Path(path)) if path else {}) | flags)

    @classmethod
    def environment(cls) -> dict[str, str]:
        """The texts of environment variables, by setting."""
        given = {name: os.environ.get(variable, "") for variable, name in cls.environment_names().items()}
        if os.environ.get("WSL_DISTRO_NAME") and given.get("name") == platform.node():
            del given["name"]  # WSL gives every shell a NAME, that of the machine
        return {name: text for name, text in given.items() if text}

    @classmethod
    def environment_names(cls) -> dict[str, str]:
        """Names of settings, by their environment variables."""
        return {cls.VARIABLES + name.upper(): name for name in cls.fields() if not cls._is_positional(name)}

    @classmethod
    def variables(cls) -> Collection[str]:
        """The names of all environment variables that a recipe takes settings from."""
        return cls.environment_names()

    @classmethod
    def _refuse_misspelt(cls, target: str) -> None:
        known = cls.variables()
        for variable in sorted(os.environ.keys() - set(known) - USUAL_VARIABLES):
            name = variable.upper()
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if cls.VARIABLES + name in known:
                near = [cls.VARIABLES + name]
            value = os.environ[variable]
            if near and value:
                raise UsageError(
                    f"{variable}={value}: {target} has no such setting. Did you mean {near[0]}? If it is not meant for "
                    f"posnet, unset {variable}."
                )

    def texts(self) -> dict[str, str]:
        """The texts that parse to these settings, without positional ones."""
        texts = {name: _text(getattr(self, name)) for name in self.fields() if not self._is_positional(name)}
        return {name: text for name, text in texts.items() if text}

    def arguments(self) -> list[str]:
        """Flags that give another posnet-run these settings."""
        switches = {name for name, each in self.fields().items() if each.type is bool}
        return [flag(name) if name in switches else f"{flag(name)}={text}" for name, text in self.texts().items()]

    @classmethod
    def _is_positional(cls, name: str) -> bool:
        return bool(cls.fields()[name].metadata["positional"])

    @classmethod
    def _flags(cls, target: str, words: Sequence[str], description: str) -> dict[str, str]:
        parser = argparse.ArgumentParser(prog=f"posnet-run {target}", description=description, allow_abbrev=False)
        fields = cls.fields()
        for name in sorted(fields, key=lambda name: name not in cls.__annotations__):  # its own before its base's
            about = fields[name].metadata
            if about["positional"]:
                parser.add_argument(name, nargs=about["positional"], metavar=about["metavar"], help=about["help"])
            elif fields[name].type is bool:
                parser.add_argument(flag(name), action="store_true", help=about["help"])
            else:
                parser.add_argument(flag(name), metavar=about["metavar"] or name.upper(), help=about["help"])
        parser.add_argument("--config", metavar="FILE", help="YAML file of settings: max_tokens: 3400; flags win")
        # What stands behind -- are words, whatever they begin with.
        end = words.index("--") if "--" in words else len(words)
        found, unknown = parser.parse_known_intermixed_args(list(words[:end]))
        texts, more = {}, list(words[end + 1 :])
        for name, value in vars(found).items():
            if name != "config" and cls._is_positional(name):
                value, more = [*(value or []), *more], []
            if value:
                texts[name] = cls._joined(name, value)
        for word in [*unknown, *more]:
            if not word.startswith("-") or word in more:
                raise UsageError(f"{word}: {target} takes no arguments, only settings; --help lists them.")
            known = [flag(name) for name in cls.fields() if not cls._is_positional(name)]
            word = word.partition("=")[0]
            raise UsageError(f"{word}: there is no such option; --help lists them.{nearest(word, known)}")
        return texts

    @classmethod
    def _joined(cls, name: str, value: object) -> str:
        """The text of a value; of several words, which may have blanks in them, with NUL between."""
        return "\0".join(value) if isinstance(value, list) and cls._is_positional(name) else _text(value)

    @classmethod
    def _of_file(cls, path: Path) -> dict[str, str]:
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise UsageError(f"{path} has no settings. Write one a line, as size: base.")
        texts = {}
        for key, value in content.items():
            name = str(key).replace("-", "_")
            if name not in cls.fields():
                raise UsageError(f"{path}: {key}: there is no such setting.{nearest(name, cls.fields())}")
            if name in texts:  # max-tokens and max_tokens
                raise UsageError(f"{path}: {key}: this setting is there twice. Leave one out.")
            if isinstance(value, dict) or (
                isinstance(value, list) and not all(isinstance(each, str) for each in value)
            ):
                raise UsageError(f"{path}: {key}: give one value, or a list of them.")
            texts[name] = cls._joined(name, value)
        return texts


def _text(value: object) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return "1"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
