"""The token mixers by name. Their architectures, flags and tests follow from being registered."""

import dataclasses
import inspect
import re
import warnings
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from posnet_fairseq.shared.errors import UsageError, nearest

_MIXERS: dict[str, Any] = {}
_BASE = "posnet_fairseq.mixers.bases.token_mixer.TokenMixer"  # by name: mixers import this module
_of_others: set[str] = set()  # options of models, fairseq-train and build_mixer besides those of mixers
# The mixers whose options and architectures fairseq's parsers have, once these are made.
_parsed: dict[str, Any] | None = None


def register_mixer(name: str, arch: str | None = None) -> Callable[[type], type]:
    """Class decorator that registers a token mixer, at any time; one of the same name and module is replaced.

    A warning says that a class of another name is replaced, or that a mixer is missing in fairseq's own commands: their
    architectures and flags are made once in a process, when :mod:`posnet_fairseq.models` is imported.

    Args:
        name: what options call it (``--encoder-self-mixer NAME``).
        arch: what its architectures are called, ``ARCH_base`` and so on. Default: `name`.

    Raises:
        ValueError: the name is no text of lower-case letters, digits and _, or is that of a mixer of another module, or
            that of its architectures or one of its options is another mixer's, the models' or fairseq-train's already,
            or the class is no TokenMixer, or declares places or options that no mixer can have.
    """

    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"mixer name {name!r:.50}: give lower-case letters, digits and _, as in @register_mixer('window')"
        )

    def register(cls: Any) -> type:
        owner = f"{cls.__module__}.{cls.__qualname__}"
        base = next((base for base in cls.__mro__ if f"{base.__module__}.{base.__qualname__}" == _BASE), None)
        if base is None:
            raise ValueError(f"mixer {name!r}: {owner} must extend {_BASE}")
        other = _MIXERS.get(name)
        if other is not None and other.__module__ != cls.__module__:
            raise ValueError(
                f"mixer {name!r}: {owner} cannot take a name that belongs to {other.__module__}.{other.__qualname__}"
            )
        others = {each.arch: each for each in _MIXERS.values() if each is not other}
        taken = others.get(arch or name)
        if taken is not None:
            raise ValueError(f"mixer {name!r}: {arch or name} names architectures of the mixer {taken.name!r} already")
        if not isinstance(cls.places, tuple) or not set(cls.places) <= set(base.places):
            raise ValueError(f"mixer {name!r}: places {cls.places!r} of {owner}: give a tuple of {base.places}")
        _check_options(cls.Config, name, f"{owner}.Config")
        if cls.GridConfig is not None:
            _check_options(cls.GridConfig, name, f"{owner}.GridConfig")
        try:
            cls.Config(**cls.arch_options)
        except (TypeError, ValueError, UsageError) as error:
            raise ValueError(f"mixer {name!r}: the defaults of {owner}.Config are refused: {error}") from error
        known = option_fields(without=name)
        for field in dataclasses.fields(cls.Config):
            theirs = known.get(field.name, field)
            if (theirs.type, theirs.metadata) != (field.type, field.metadata):
                raise ValueError(f"option {field.name!r}: {owner} declares it differently than another mixer")
        if other is not None and other.__qualname__ != cls.__qualname__:
            warnings.warn(f"mixer {name!r}: {owner} replaces {other.__qualname__} of the same module", stacklevel=2)
        if _MIXERS is _parsed:
            warnings.warn(
                f"mixer {name!r}: {owner} comes too late for fairseq's own commands in this process: their "
                "architectures and options were made when posnet_fairseq.models was imported. To train it, register it "
                "before; all else has it.",
                stacklevel=2,
            )
        cls.name = name
        cls.arch = arch or name
        _MIXERS[name] = cls
        return cls

    return register


def _check_options(config: type, name: str, owner: str) -> None:
    """Refuse options of a mixer that no command line or call can give; types that are texts become what they name."""
    if "__dataclass_fields__" not in vars(config) and inspect.get_annotations(config):
        raise ValueError(f"mixer {name!r}: {owner} must be a @dataclass")
    options = dataclasses.fields(config)
    if any(isinstance(option.type, str) for option in options):  # as with `from __future__ import annotations`
        try:
            named = get_type_hints(config)
        except NameError as error:
            raise ValueError(f"{owner}: types of its options are not found: {error}") from error
        for option in options:
            option.type = named[option.name]
    for option in options:
        if option.name in _of_others:
            raise ValueError(
                f"option {option.name!r}: {owner} declares it, and models, fairseq-train or build_mixer have it "
                "already. Give it another name"
            )
        union = get_origin(option.type) in (Union, UnionType)
        kinds = [kind for kind in (get_args(option.type) if union else (option.type,)) if kind is not type(None)]
        kind = kinds[0] if len(kinds) == 1 else None
        texts = get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind))
        if not (texts or kind in (bool, int, float, str)):
            raise ValueError(
                f"option {option.name!r}: {owner} declares the type {option.type}: give bool, int, float, str or a "
                "Literal of texts, with '| None' where there may be no value"
            )


def mixer_names(*, on_grids: bool = False, place: str | None = None) -> list[str]:
    """Return the names of all mixers of sentences, sorted, or of all that have a form on grids.

    `place`: ``encoder``, ``decoder`` or ``cross``, for the mixers of sentences that may stand there.

    Raises:
        UsageError: `place` is none of these, or given for grids, too.
    """
    if on_grids and place is not None:
        raise UsageError(f"place {place!r:.50}: mixers on grids have none. Leave out place or on_grids.")
    if place is not None and place not in (places := {each for cls in _MIXERS.values() for each in cls.places}):
        raise UsageError(f"place {place!r:.50}: choose one of {', '.join(sorted(places))}.")
    if on_grids:
        return sorted(name for name, cls in _MIXERS.items() if cls.GridConfig is not None)
    return sorted(name for name, cls in _MIXERS.items() if (place in cls.places if place else cls.places))


def get_mixer(name: str, option: str = "mixer") -> Any:
    """Return the class registered as `name`, or refuse a name of none, which was given with `option`."""
    if isinstance(name, str) and name in _MIXERS:
        return _MIXERS[name]
    of_arch = (f" Did you mean {each.name}?" for each in _MIXERS.values() if each.arch == name)
    hint = next(of_arch, nearest(str(name), _MIXERS))
    raise UsageError(f"{option} {name}: there is no such mixer. Choose one of: {', '.join(mixer_names())}.{hint}")


def option_fields(without: str | None = None) -> dict[str, dataclasses.Field]:
    """Return the options of all mixers but `without`, each once: a dict from name to dataclasses.Field."""
    names = [name for name in mixer_names() if name != without]
    return {field.name: field for name in names for field in dataclasses.fields(_MIXERS[name].Config)}


def reserve_options(names: Iterable[str]) -> None:
    """Refuse mixers that declare one of the options `names`, which models, fairseq-train or build_mixer have."""
    _of_others.update(names)
    if clashes := _of_others & option_fields().keys():
        raise ValueError(
            "mixers declare options that models, fairseq-train or build_mixer have already: "
            f"{', '.join(sorted(clashes))}. Give them other names"
        )


def parsers_are_made() -> None:
    """Warn of further mixers: the flags and architectures of fairseq are made of those that there are."""
    global _parsed
    _parsed = _MIXERS
