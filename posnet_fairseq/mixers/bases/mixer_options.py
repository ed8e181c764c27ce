"""Options of mixers: fields of dataclasses, some of which several mixers read, and their checks."""

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from posnet_fairseq.shared import errors
from posnet_fairseq.shared.schema import check_choice, check_range

# Beyond it a sentence would need more tokens than any model reads; tables grow with it.
MOST_OFFSETS = 2**16


def option(help_text: str, default: Any = None, **metadata: Any) -> Any:
    """Return a field of options. `default` holds where neither the user nor the size says otherwise.

    `metadata`: ``limits=(least, most)`` of a number, by default 1 and :data:`MOST_OFFSETS`.
    """
    return field(default=default, metadata={"help": help_text, **metadata})


def plain_type(option: Field) -> Any:
    """Return the type of an option's values, a class or a Literal, without the None that it may also be."""
    annotation: Any = option.type
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


def choices(option: Field) -> list[Any] | None:
    """Return the values that an option may take, or None if they are numbers or text."""
    kind = plain_type(option)
    if kind is bool:
        return [False, True]
    return list(get_args(kind)) if get_origin(kind) is Literal else None


@dataclass
class Options:
    """Base of a mixer's options, none by itself. Numbers are within their limits, see :func:`option`."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if plain_type(each) in (int, float) and not (value is None and each.default is None):
                least, most = each.metadata.get("limits", (1, MOST_OFFSETS))
                check_range(errors.option(each.name), value, least, most, plain_type(each) is int)


def configure(config: type, values: Mapping[str, Any]) -> Any:
    """Return a mixer's Config from values given as the command line, hydra or a benchmark give them.

    Args:
        config: the dataclass.
        values: dict from names of its fields to values; what is left out has its default.

    Raises:
        UsageError: a value is not one that its option may take.
    """
    return config(**{each.name: _parsed(each, values[each.name]) for each in fields(config) if each.name in values})


def _parsed(option: Field, value: Any) -> Any:
    name, allowed, kind = errors.option(option.name), choices(option), plain_type(option)
    if value is None and (option.default is None or kind is not option.type):
        return None
    if allowed:
        value = value if kind is bool and type(value) not in (int, float) else str(value)
        check_choice(name, value, allowed)
        return value
    if kind is float:
        is_text = isinstance(value, str) and re.fullmatch(r"-?\d{1,9}(\.\d{1,9})?(e-?\d)?", value)
        return float(value) if is_text else value
    if kind is str:
        return str(value)
    if isinstance(value, bool) or not re.fullmatch(r"-?\d{1,9}", str(value)):
        raise errors.UsageError(f"{name} {value!s:.50}: give a whole number of at most 9 digits.")
    return int(value)


@dataclass
class ClipDistance(Options):
    """The distance beyond which all offsets share one vector or weight."""

    clip_distance: int = option(
        "K: relative positions beyond ±K share one vector or weight; 4,8,16,... gives every layer its own "
        "(PosNet Eq. 10)",
        default=16,
        per_layer=True,
        reach=True,
    )
