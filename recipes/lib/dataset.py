"""What a recipe asks of a dataset: python recipes/lib/dataset.py languages|key FOLDER."""

import json
import sys
from pathlib import Path

from posnet_fairseq.cli._run import command
from posnet_fairseq.errors import UsageError


@command
def main(arguments=None):
    """Print source and target, or the hash of all that the data was made of."""
    what, folder = arguments or sys.argv[1:]
    path = Path(folder) / "dataset.json"
    card = json.loads(path.read_text(encoding="utf-8"))
    missing = [name for name in ("source_lang", "target_lang", "key") if not card.get(name)]
    if missing:
        raise UsageError(f"{path} does not say {', '.join(missing)}. Make the dataset with posnet-prepare.")
    print(card["key"] if what == "key" else f"{card['source_lang']} {card['target_lang']}")


if __name__ == "__main__":
    main()
