"""Text in fairseq's binary form. This is the only module of posnet_data_prep that imports fairseq.

fairseq takes seconds to import, so that is done where it is called: most runs of posnet-prepare do not need it.
"""

import contextlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from posnet_data_prep.dataset import SETS
from posnet_fairseq.shared.processes import apart
from posnet_fairseq.shared.progress import Bar
from posnet_fairseq.shared.stages import RECORD

SECONDS_BETWEEN_LOOKS = 0.5


def binarize(
    folder: Path,
    prefixes: Mapping[str, Path],
    languages: Sequence[str],
    joined: bool,
    workers: int,
    bar: Bar,
    dictionaries: Sequence[Path] = (),
) -> None:
    """Run fairseq-preprocess on ``PREFIX.LANGUAGE`` of each set; without languages, a prefix is a file."""
    from posnet_fairseq.fairseq_plugin.repairs import merge_large_indexes

    merge_large_indexes()  # before the next imports: with its module fairseq is imported without scikit-learn
    from fairseq_cli import preprocess  # noqa: F401 (the process of _preprocess has it then, too)

    for left in folder.glob("*"):
        if left.name != RECORD:
            left.unlink()
    arguments = ["--source-lang", languages[0], "--target-lang", languages[1]] if languages else ["--only-source"]
    if dictionaries:
        source, target = map(str, dictionaries)
        arguments += ["--srcdict", source, "--tgtdict", target]
    elif joined:
        arguments += ["--joined-dictionary"]
    # fairseq processes the first part itself after its workers have ended; with more parts that takes less time.
    parts = 2 * workers if workers > 1 else 1
    arguments += ["--destdir", str(folder), "--workers", str(parts)]
    for name in SETS:
        given = [str(prefix) for of, prefix in prefixes.items() if of.startswith(name)]
        arguments += [f"--{name}pref", ",".join(given)] if given else []
    logging.getLogger("fairseq_cli.preprocess").propagate = False  # it keeps its own preprocess.log
    apart(_preprocess, arguments, lambda: bar.move_to(_binary_bytes(folder)), SECONDS_BETWEEN_LOOKS)
    bar.move_to(_binary_bytes(folder))
    (folder / "preprocess.log").unlink()  # it has dates and paths, which differ each time


def length_ratio(folder: Path, languages: Sequence[str]) -> float:
    """Return γ, the source tokens per target token of the training set: PosNet (Schmidt and Di Gangi, 2023) Eq. 10."""
    from posnet_fairseq.fairseq_plugin.measured_length_ratio import measure

    source, target = measure(folder, languages[0], languages[1])
    return float(source / target)


def _preprocess(arguments: list[str]) -> None:
    from fairseq import options
    from fairseq_cli import preprocess

    preprocess.main(options.get_preprocessing_parser().parse_args(arguments))


def _binary_bytes(folder: Path) -> int:
    total = 0
    for path in folder.glob("*.bin"):
        with contextlib.suppress(FileNotFoundError):  # fairseq removes the parts that it has merged
            total += path.stat().st_size
    return total
