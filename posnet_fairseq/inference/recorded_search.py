"""Search settings that a model records in its checkpoint or folder: those that it was evaluated with."""

from collections.abc import Mapping
from typing import Any

from posnet_fairseq.inference.search.settings import RECORDED, SearchSettings
from posnet_fairseq.shared.errors import UsageError

ENTRY = "search"  # of a checkpoint's extra_state, and of a folder's configuration


def recorded_search(state: Mapping[str, Any]) -> dict[str, Any]:
    """The search settings that a model records, by name; {} if it records none.

    Args:
        state: content of its checkpoint or folder.

    Raises:
        UsageError: they are no settings of a search, or have values that options may not have.
    """
    extra = state.get("extra_state")
    found = extra.get(ENTRY, {}) if isinstance(extra, Mapping) else {}
    if not isinstance(found, Mapping) or not found.keys() <= RECORDED.keys():
        raise UsageError(
            f"the search settings that it records are {found!r:.80}, not values of {', '.join(RECORDED)}. Take another "
            "checkpoint, or export the model again."
        )
    try:
        SearchSettings(**found).check()
    except UsageError as error:
        raise UsageError(f"the search settings that it records are not allowed: {error}") from error
    return dict(found)
