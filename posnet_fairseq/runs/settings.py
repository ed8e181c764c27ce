"""Settings of runs, each declared once: flags of the command line and keys of a YAML file follow.

A setting is a field of a dataclass made by :func:`setting`. Values are text until they are parsed, wherever they come
from, so that ``7e-4`` reaches fairseq-train as it was written.
"""

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from posnet_fairseq.runs.parsers import Parse, folder, whole_number
from posnet_fairseq.shared.errors import UsageError, flag, nearest, option
from posnet_fairseq.shared.schema import read_yaml


def setting(
    help: str,
    default: Any = None,
    parse: Parse = str,
    *,
    positional: str = "",
    metavar: str | None = None,
    stage: str | None = None,
) -> Any:
    """Return a field of a :class:`Settings`.

    Args:
        stage: the stage of a run whose outcome depends on the value, and whose record has it; None if none does.
        parse: function from text to a value; its ValueError has what is allowed, as the end of a sentence, and before
            that, if it is not the whole text, the part that is not allowed.
        positional: argparse's ``nargs`` of a setting that is no flag but words, ``?`` or ``*``.
    """
    metavar = metavar or {whole_number: "N", folder: "FOLDER"}.get(parse)
    metadata = {"help": help, "parse": parse, "positional": positional, "metavar": metavar, "stage": stage}
    return field(default=default, metadata=metadata)


def refuse(name: str, value: object, reason: str) -> NoReturn:
    """Raise a :class:`UsageError` that names the setting, what was given and what is allowed."""
    raise UsageError(f"{option(name, value)}: {reason}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of the settings of runs, comparisons and others."""

    @classmethod
    def fields(cls) -> dict[str, Field]:
        """Return its settings by name."""
        return {each.name: each for each in dataclasses.fields(cls)}

    @classmethod
    def flags(cls) -> dict[str, Field]:
        """Return its settings that are flags, by name."""
        return {name: each for name, each in cls.fields().items() if not each.metadata["positional"]}

    @classmethod
    def parsed(cls, texts: Mapping[str, str]) -> Self:
        """Return settings of texts; an empty text counts as not given."""
        values = {}
        for name, text in cls.completed({name: text for name, text in texts.items() if text != ""}).items():
            about = cls.fields()[name].metadata
            try:
                values[name] = about["parse"](text)
            except ValueError as error:
                *part, reason = error.args
                said = part[0] if part else text
                where = f"{about['metavar'].lower()} {said}" if about["positional"] else option(name, said)
                raise UsageError(f"{where}: {reason}") from error
        made = cls(**values)
        made.check()
        return made

    @classmethod
    def completed(cls, texts: dict[str, str]) -> dict[str, str]:
        """Return the texts, with defaults that depend on other settings."""
        return texts

    def check(self) -> None:
        """Refuse settings that do not fit together."""

    @classmethod
    def read(cls, target: str, words: Sequence[str], description: str, defaults: Mapping[str, str]) -> Self:
        """Return the settings of a command line behind its target, else of its --config, else the defaults."""
        texts = cls._of_words(target, words, description)
        path = texts.pop("config", "")
        return cls.parsed({**defaults, **(cls._of_file(Path(path)) if path else {}), **texts})

    def texts(self) -> dict[str, str]:
        """Return the texts that parse to these settings, without positional ones."""
        texts = {name: _text(getattr(self, name)) for name in self.flags()}
        return {name: text for name, text in texts.items() if text}

    def recorded(self, stage: str) -> dict[str, Any]:
        """Return the values that the outcome of a stage depends on, by flag; several names as one text."""
        values = {
            flag(name): getattr(self, name) for name, each in self.flags().items() if each.metadata["stage"] == stage
        }
        joined = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {name: value for name, value in joined.items() if value not in (None, "")}

    @classmethod
    def _of_words(cls, target: str, words: Sequence[str], description: str) -> dict[str, str]:
        """Return the texts of a command line, and that of ``config``."""
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
        parser.add_argument(
            "--config", metavar="FILE", help="YAML file of settings, such as max_tokens: 3400; flags override it"
        )
        found, unknown = parser.parse_known_intermixed_args(list(words))
        if unknown:
            word = unknown[0].partition("=")[0]
            hint = nearest(word, ["--config", *map(flag, cls.flags())])
            kind = "option" if word.startswith("-") else "further argument"
            raise UsageError(f"{word}: {target} takes no such {kind}; --help lists all.{hint}")
        for name, value in vars(found).items():
            if value == "" and name in (*cls.flags(), "config") and name != "options":
                raise UsageError(f"{flag(name)}: empty, as of an unset shell variable. Give a value, or leave it out.")
        return {name: _text(value) for name, value in vars(found).items() if value}

    @classmethod
    def _of_file(cls, path: Path) -> dict[str, str]:
        """Return the texts of a YAML file."""
        texts: dict[str, str] = {}
        content = read_yaml(path)
        if not isinstance(content, dict):
            raise UsageError(f"{path}: give settings, each in a line, such as max_tokens: 3400.")
        for key, value in content.items():
            name = str(key).replace("-", "_")
            if name not in cls.fields():
                raise UsageError(f"{path}: {key}: there is no such setting.{nearest(name, cls.fields())}")
            if name in texts:
                raise UsageError(f"{path}: {key}: this setting is there twice, with - and with _. Leave one out.")
            if not all(isinstance(each, str) for each in (value if isinstance(value, list) else [value])):
                raise UsageError(f"{path}: {key}: give one value, or a list of values.")
            texts[name] = _text(value)
        return texts


def _text(value: object) -> str:
    """Return the text that parses to a value."""
    if value is None or value is False:
        return ""
    if value is True:
        return "1"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
