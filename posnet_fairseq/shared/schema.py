"""The form of what posnet reads: JSON and YAML files, parsed strictly and converted to types, and ranges of numbers."""

import argparse
import itertools
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import msgspec
import yaml

from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.shared.files import SMALL, decoded, read_small

_ADVICE = "Correct it."
_MOST_DIGITS = 40  # of a number: Python would compute for ever at 1e999999999
_MOST_NODES = 100_000  # of a YAML file: aliases of aliases may stand for billions
_MOST_LEVELS = 100  # what follows parsing calls itself for each level, too
_MANY = f"it has more than {_MOST_NODES:,} values, with its aliases in full"
_NESTED = "it is nested too deeply"
_PARSING = (yaml.YAMLError, RecursionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def read_json(path: str | Path, kind: Any = Any, what: str = "", advice: str = _ADVICE, most: int = SMALL) -> Any:
    """Return the content of a JSON file of at most `most` bytes as a type; other arguments as for :func:`convert`.

    Raises:
        UsageError: the file is missing, too large or not JSON, has a key twice in an object or a number that is not
            finite or has more than 40 digits, or its content is not of the type.
    """
    return convert(parse_json(read_small(path, most), path, what, advice), kind, path, what, advice)


def parse_json(data: bytes | str, name: object, what: str = "", advice: str = _ADVICE) -> Any:
    """Return the content of JSON text, refused as by :func:`read_json`; ``name`` is that of the text's file."""
    try:
        return loads(data, object_pairs_hook=_unique, parse_int=_number, parse_float=_number, parse_constant=_number)
    except _PARSING as error:
        raise UsageError(f"{name} is no {what or 'JSON'}: {_problem(error)}. {advice}") from error


def loads(data: bytes | str, **hooks: Any) -> Any:
    """Return the content of JSON text from a file, as :func:`json.loads`, which `hooks` are arguments of.

    Raises:
        ValueError: it is not JSON, or nested in more than 100 levels.
    """
    try:
        content = json.loads(data, **hooks)
    except RecursionError as error:
        raise ValueError(_NESTED) from error
    parts: Iterable[Any] = [content]
    for _ in range(_MOST_LEVELS + 1):
        level = [part for part in parts if isinstance(part, list | dict)]
        if not level:
            return content
        parts = itertools.chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
    raise ValueError(_NESTED)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"{key!r:.50} is there twice")
    return found


def _number(text: str) -> int | float:
    if len(text) <= _MOST_DIGITS and math.isfinite(value := float(text)):
        return int(text) if text.removeprefix("-").isdigit() else value
    raise ValueError(f"{text:.50} is no finite number of at most {_MOST_DIGITS} digits")


class _Strict(yaml.composer.Composer, yaml.constructor.BaseConstructor):
    """Mixin for a loader that refuses values within themselves and duplicate keys, of which YAML takes the last.

    It also refuses more than 100,000 values or 100 levels, where an alias counts as all that it stands for.
    """

    composed = 0

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            values, levels = _extent(node, {})
            if values > _MOST_NODES:
                raise yaml.YAMLError(_MANY)
            if levels > _MOST_LEVELS:
                raise yaml.YAMLError(_NESTED)
        return node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.composed += 1
        if self.composed > _MOST_NODES:
            raise yaml.YAMLError(_MANY)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        return super().construct_object(node, deep=True)  # a list would be filled later, and could be its own member

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)  # keys that come from << may be there again
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add((key.tag, key.value))
        return node


def _extent(node: yaml.Node, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return the number of values and levels of a node with its aliases in full; those `known` are by their ids."""
    if id(node) not in known:
        known[id(node)] = 0, 0  # within itself, which is refused when it is constructed
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            parts = itertools.chain.from_iterable(node.value)
        found = [_extent(part, known) for part in parts]
        known[id(node)] = 1 + sum(values for values, _ in found), 1 + max((levels for _, levels in found), default=0)
    return known[id(node)]


class TextLoader(_Strict, yaml.BaseLoader):
    """Loader that leaves all scalars as they are written: 7e-4, off."""


class Written(str):
    """A number as it is written in a file, where Python would write it in another way: 007, 0x10, 1_000, 3.10, .inf."""

    __slots__ = ("number",)
    number: float  # what YAML reads

    def __new__(cls, text: str, number: float) -> "Written":
        """Return the text of a number."""
        self = super().__new__(cls, text)
        self.number = number
        return self


class PlainLoader(_Strict, yaml.SafeLoader):
    """Loader of plain data: texts, numbers (see :class:`Written`), switches, lists and mappings. Dates are texts."""

    def number_or_text(self, node: yaml.ScalarNode) -> object:
        """Return a number, or a text with a colon or of many digits as it is: YAML would read 12:30 as 750."""
        text = self.construct_scalar(node)
        if ":" in text or len(text) > _MOST_DIGITS or node.tag.endswith(":timestamp"):
            return text
        is_int = node.tag.endswith(":int")
        number: float = self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)
        return number if str(number) == text else Written(text, number)


for _kind in ("int", "float", "timestamp"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", PlainLoader.number_or_text)


def read_yaml(path: str | Path, kind: Any = Any, loader: type[TextLoader] | type[PlainLoader] = TextLoader) -> Any:
    """Return the content of a YAML file or pipe as a type, see :func:`convert`.

    Text of :class:`TextLoader` becomes numbers and switches where the type has them.

    Raises:
        UsageError: the file is missing, too large or not YAML, has a key twice in a mapping, or its content is not of
            the type.
    """
    try:
        content = yaml.load(decoded(read_small(path, pipes=True), path).removesuffix("\n"), loader)
    except UsageError:
        raise
    except _PARSING as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise UsageError(f"{path} is not YAML{line}: {_problem(error)}. {_ADVICE}") from error
    return convert(content, kind, path, strict=loader is not TextLoader)


def _problem(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return _NESTED
    if not isinstance(error, yaml.YAMLError | ValueError):
        return "it has a value that cannot be read"
    return f"{getattr(error, 'problem', None) or error or type(error).__name__!s:.200}"


def convert(data: object, kind: Any, path: object, what: str = "", advice: str = _ADVICE, strict: bool = True) -> Any:
    """Return parsed JSON or YAML as a type.

    Args:
        data: lists, dicts, text, numbers, switches and None.
        kind: type, see the documentation of msgspec. Two members of a union with a pattern crash msgspec 0.22.
        path, what, advice: file of the data, what it should be, and how to get a right one, for the error's text.
        strict: refuse text where the type has a number or a switch.
    """
    try:
        return msgspec.convert(data, kind, strict=strict)
    except msgspec.ValidationError as error:
        file = f"{path} is no {what}" if what else path
        raise UsageError(f"{file}: {str(error).rstrip('.')}. {advice}") from error


def check_range(name: str, number: object, least: float, most: float, whole: bool = False) -> None:
    """Refuse what is no number from `least` to `most`, or with `whole` a fraction; `name` is what the user calls it."""
    if isinstance(number, bool) or not isinstance(number, Integral if whole else Real):
        raise UsageError(f"{name} {number!r:.50}: give a {'whole ' if whole else ''}number.")
    if not least <= number <= most:  # type: ignore[operator]  # any Real compares
        raise UsageError(f"{name} {number}: give {least} or more, and at most {most:,}.")


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse a value that is none of the choices; `name` is what the user calls it."""
    if value not in choices:
        given = repr(value) if str(value) in map(str, choices) else value  # 'True' for True
        raise UsageError(f"{name} {given!s:.50}: choose one of {', '.join(map(str, choices))}.")


def check_numbers(options: argparse.Namespace, **limits: tuple[float, float]) -> None:
    """Refuse numbers given on a command line that are out of range, each by the name of its option."""
    for name, (least, most) in limits.items():
        given = getattr(options, name)
        for number in given if isinstance(given, list) else [given]:
            if number is not None:
                check_range(flag(name), number, least, most)
