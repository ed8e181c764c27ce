"""CPU time of an update of one training, relative to one of another: both train in turn, on the same batches.

The runs of a study are made on several days and machines, beside other programs. Seconds in their logs differ by much
for these reasons; ratios measured in turn by some percent. Both trainings are new ones: their first updates are timed.

    python -m posnet_fairseq.studies.update_cost OUT ARGUMENT ... --against ARGUMENT ...

writes a JSON file. Arguments are those of fairseq-train.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.files import write_lines

UPDATES, WARM_UP = 30, 5
AGAINST = "--against"


def measuring(out: Path, own: Sequence[str], other: Sequence[str]) -> list[str]:
    """Return the command that measures a training against another."""
    return [sys.executable, "-W", "ignore", "-m", __name__, str(out), *own, AGAINST, *other]


def _training(arguments: Sequence[str]) -> Callable[[], object]:
    """Return a function that does the next update of a training that begins."""
    import posnet_fairseq.fairseq_plugin  # noqa: F401  (imports fairseq as this Python needs it)

    # isort: split
    from fairseq import tasks
    from fairseq.data.iterators import GroupedIterator
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    from posnet_fairseq.runs.before_training import parse

    cfg = convert_namespace_to_omegaconf(parse(arguments))
    task = tasks.setup_task(cfg.task)
    trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
    epochs = trainer.get_train_iterator(epoch=1, load_dataset=True)
    batches = itertools.chain.from_iterable(
        GroupedIterator(epochs.next_epoch_itr(), cfg.optimization.update_freq[0]) for _ in itertools.count()
    )
    trainer.begin_epoch(1)
    return lambda: trainer.train_step(next(batches))


@command
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure a training against another."""
    from posnet_fairseq.bench.timing import interleaved, median_ratio  # imports torch

    out, *rest = sys.argv[1:] if arguments is None else arguments
    place = rest.index(AGAINST)
    trainings = {"own": _training(rest[:place]), "other": _training(rest[place + 1 :])}
    seconds = interleaved(trainings, UPDATES, WARM_UP, time.process_time)
    cost = {
        "relative": round(median_ratio(seconds["own"], seconds["other"]), 4),
        "other_seconds": round(statistics.median(seconds["other"]), 4),
        "updates": UPDATES,
    }
    write_lines(Path(out), [json.dumps(cost)])


if __name__ == "__main__":
    main()
