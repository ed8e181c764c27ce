"""The token mixers by name. Their architectures, flags and tests follow from being registered."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from posnet_fairseq.shared.errors import UsageError, nearest

_MIXERS: dict[str, Any] = {}
_BASE = "posnet_fairseq.mixers.bases.token_mixer.TokenMixer"  # by name: mixers import this module
# The mixers that the models have options and architectures of, once these are made.
_built_for: dict[str, Any] | None = None


def register_mixer(name: str, arch: str | None = None) -> Callable[[type], type]:
    """Class decorator that registers a token mixer.

    Args:
        name: what options call it (``--encoder-self-mixer NAME``).
        arch: what its architectures are called, ``ARCH_base`` and so on. Default: `name`.

    Raises:
        ValueError: the name, that of its architectures or one of its options is another mixer's already, or the class
            is no TokenMixer, or declares places or options that no mixer can have.
    """

    def register(cls: Any) -> type:
        owner = f"{cls.__module__}.{cls.__qualname__}"
        base = next((base for base in cls.__mro__ if f"{base.__module__}.{base.__qualname__}" == _BASE), None)
        if base is None:
            raise ValueError(f"mixer {name!r}: {owner} must extend {_BASE}")
        if name in _MIXERS:
            other = _MIXERS[name]
            raise ValueError(
                f"mixer {name!r}: {owner} cannot take a name that belongs to {other.__module__}.{other.__qualname__}"
            )
        taken = {each.arch: each for each in _MIXERS.values()}.get(arch or name)
        if taken is not None:
            raise ValueError(f"mixer {name!r}: {arch or name} names architectures of the mixer {taken.name!r} already")
        if not isinstance(cls.places, tuple) or not set(cls.places) <= set(base.places):
            raise ValueError(f"mixer {name!r}: places {cls.places!r} of {owner}: give a tuple of {base.places}")
        if "__dataclass_fields__" not in vars(cls.Config) and inspect.get_annotations(cls.Config):
            raise ValueError(f"mixer {name!r}: {owner}.Config must be a @dataclass")
        try:
            cls.Config(**cls.arch_options)
        except (TypeError, ValueError, UsageError) as error:
            raise ValueError(f"mixer {name!r}: the defaults of {owner}.Config are refused: {error}") from error
        known = option_fields()
        for field in dataclasses.fields(cls.Config):
            theirs = known.get(field.name, field)
            if (theirs.type, theirs.metadata) != (field.type, field.metadata):
                raise ValueError(f"option {field.name!r}: {owner} declares it differently than another mixer")
        if _MIXERS is _built_for:
            raise ValueError(
                f"mixer {name!r}: {owner} comes too late, the options of the models are made. Register it before "
                "posnet_fairseq.models is imported."
            )
        cls.name = name
        cls.arch = arch or name
        _MIXERS[name] = cls
        return cls

    return register


def mixer_names(on_grids: bool = False, place: str | None = None) -> list[str]:
    """Return the names of all mixers of sentences, sorted, or of all that have a form on grids.

    `place`: ``encoder``, ``decoder`` or ``cross``, for the mixers of sentences that may stand there.
    """
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


def option_fields() -> dict[str, dataclasses.Field]:
    """Return the options of all mixers, each once: a dict from name to dataclasses.Field."""
    return {field.name: field for name in mixer_names() for field in dataclasses.fields(_MIXERS[name].Config)}


def close_registry() -> None:
    """Refuse further mixers: the options and architectures of the models have been made of those that there are."""
    global _built_for
    _built_for = _MIXERS
