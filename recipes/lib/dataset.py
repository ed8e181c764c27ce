"""What a recipe asks of a dataset: python recipes/lib/dataset.py FOLDER."""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError


@dataclass(frozen=True)
class Card:
    """What the card of a dataset says.

    Attributes:
        source, target: languages.
        key: hash of all that the data was made of.
        lowercase: whether the target side is in lower case, and so are translations: scores must ignore case.
    """

    source: str
    target: str
    key: str
    lowercase: bool


def read_card(folder):
    """The card of a dataset that posnet-prepare made.

    Raises:
        UsageError: there is none, or it is not of a dataset for translation.
    """
    path = Path(folder) / "dataset.json"
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        found = tuple(card.get(name) for name in ("source_lang", "target_lang", "key"))
        lowercase = card.get("words", {}).get(found[1], {}).get("lowercase", False)
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} cannot be read. Make the dataset with posnet-prepare.") from error
    if not all(isinstance(text, str) and re.fullmatch(r"[\w.-]+", text) for text in found):
        raise UsageError(f"{path} does not say both languages: it is no dataset for translation.")
    return Card(*found, lowercase)


@command
def main(arguments=None):
    """Print it."""
    (folder,) = arguments or sys.argv[1:]
    card = read_card(folder)
    print(card.source, card.target, card.key, "lowercase" if card.lowercase else "cased")


if __name__ == "__main__":
    main()
