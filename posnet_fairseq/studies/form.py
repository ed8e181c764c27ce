"""The form of a result: the values that tables and pictures are made of."""

import lzma
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from posnet_fairseq.studies.compression import unpack

PRECISIONS = ("float32", "int8")
_LARGEST = 2**63  # beyond any figure of a run


def fault(result: Mapping[str, Any], metrics: Sequence[str]) -> str | None:
    """Return the first value of a result that is not as a run writes it, in words; None if all are.

    Args:
        result: of a run.
        metrics: that it has scores of.
    """
    return next(_faults(result, metrics), None)


def _faults(result: Mapping[str, Any], metrics: Sequence[str]) -> Iterator[str]:
    translation = {"cpu_seconds": _or_none(_is_positive), **dict.fromkeys(metrics, _SCORES)}
    yield from _differences(result, _RESULT, "")
    for name, translated in result["test_sets"].items():
        yield from _differences(translated, dict.fromkeys(PRECISIONS, translation), f"test_sets.{name}.")
        packed = [translated[precision][metric]["segments"] for precision in PRECISIONS for metric in metrics]
        lines = {each["shape"][0] for each in packed}
        if len(lines) > 1:
            yield f"test_sets.{name} has {' and '.join(map(str, sorted(lines)))} lines in different translations"


def _differences(found: object, form: Mapping[str, Any], place: str) -> Iterator[str]:
    """Values that do not have their form, from outside inwards.

    Args:
        found: the values.
        form: by name, a function that says whether a value, None for none, is right; or the form of values in it.
        place: in which they are, for messages.
    """
    if not isinstance(found, Mapping):
        yield f"{place.rstrip('.')} is {reprlib.repr(found)}"
        return
    for name, of_value in form.items():
        value = found.get(name)
        if isinstance(of_value, Mapping):
            yield from _differences(value, of_value, f"{place}{name}.")
        elif not of_value(value):
            yield f"{place}{name} is {reprlib.repr(value)}" if name in found else f"{place}{name} is missing"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _LARGEST


def _is_score(value: object) -> bool:
    return value == 0 or (_is_positive(value) and value <= 100)  # type: ignore[operator]  # a number


def _or_none(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _is_cost(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_is_positive, (value.get("relative"), value.get("other_seconds"))))


def _is_course(value: object) -> bool:
    """Whether a validation has a perplexity after each of its updates."""
    if not isinstance(value, Mapping):
        return False
    updates, perplexity = value.get("updates"), value.get("perplexity")
    if not isinstance(updates, list) or not isinstance(perplexity, list):
        return False
    return 0 < len(updates) == len(perplexity) and all(map(_is_positive, [*updates, *perplexity]))


def _is_packed(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    try:
        return unpack(value).size > 0
    except (LookupError, TypeError, ValueError, lzma.LZMAError):
        return False


_RESULT = {
    "study": _is_text,
    "system": _is_text,
    "seed": _is_count,
    "settings": _is_mapping,
    "data": {"key": _is_text, "source": _is_text, "target": _is_text},
    "training": {
        "updates": _is_positive,
        "best_update": _is_positive,
        "best_perplexity": _is_positive,
        "cpu_seconds_per_update": _or_none(_is_positive),
        "attempts": _is_positive,
        "validation": _is_course,
        "cost": _or_none(_is_cost),
    },
    "search": {"beam": _is_positive},
    "model": {"parameters": _is_positive, "folder_bytes": _is_positive},
    "test_sets": _is_mapping,
}
_SCORES = {"score": _is_score, "signature": _is_mapping, "segments": _is_packed}
