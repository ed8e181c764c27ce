"""Reading of plain text, of fairseq's logs and of sacreBLEU's test sets."""

import re
from collections.abc import Sequence
from pathlib import Path

from posnet_eval.inputs.plan import Lines
from posnet_fairseq.shared.errors import UsageError, option
from posnet_fairseq.shared.files import is_blank, read_lines

_HYPOTHESIS = re.compile(r"^(?P<kind>[HD])-(?P<number>\d+)\t(?P<score>-?[\d.einfa+-]+)\t(?P<text>.*)$")
_COMPANION = re.compile(r"^(?P<kind>[STWP])-(?P<number>\d+)\t")  # source, target, seconds, scores of tokens


def read_output(path: Path) -> list[str]:
    """Return the lines of a translation, plain text or a log that fairseq-generate or fairseq-interactive printed.

    From a log, the best hypothesis of each sentence is taken, in the order of the sentences: the detokenized one
    (``D-``) or, in a log without such lines, ``H-``. A file is a log if a sentence has a line ``S-``, ``T-``, ``W-`` or
    ``P-`` beside its hypothesis, or if all of its lines are hypotheses (``grep ^D-``).
    """
    lines = read_lines(path)
    if not _is_log(lines):
        return lines
    found: dict[str, dict[int, str]] = {"H": {}, "D": {}}
    last = None
    for match in filter(None, map(_HYPOTHESIS.match, lines)):
        number, texts = int(match["number"]), found[match["kind"]]
        if number in texts and number != last:
            raise UsageError(f"{path} holds sentence {number} of two runs of fairseq's. Give a file of one run.")
        texts.setdefault(number, match["text"])  # the best hypothesis comes first
        last = number
    best = found["D"] or found["H"]
    missing = next(number for number in range(len(best) + 1) if number not in best)
    if missing < len(best):
        raise UsageError(
            f"{path} is a log of fairseq's without a translation of sentence {missing} (counted from 0). Translate "
            "again with --required-batch-size-multiple 1, without --skip-invalid-size-inputs-valid-test."
        )
    # fairseq prints the scores of a hypothesis behind it.
    if any(line.startswith("P-") for line in lines) and _HYPOTHESIS.match(lines[-1]):
        raise UsageError(
            f"{path} is a log of fairseq's that is cut short: it ends in a translation, of sentence {last} (counted "
            "from 0), without its scores. Copy it again, or translate again."
        )
    return [best[number] for number in range(len(best))]


def _is_log(lines: Sequence[str]) -> bool:
    hypotheses = [match["number"] for line in lines if (match := _HYPOTHESIS.match(line))]
    companions = {match["number"] for line in lines if (match := _COMPANION.match(line))}
    alone = len(hypotheses) == sum(not is_blank(line) for line in lines)
    return bool(hypotheses) and (alone or not companions.isdisjoint(hypotheses))


def read_test_set(name: str, pair: str) -> tuple[Lines, tuple[Lines, ...]]:
    """Return source and references of a test set of sacreBLEU's, as "wmt14/full", in a pair of languages."""
    from sacrebleu.dataset import DATASETS
    from sacrebleu.utils import SACREBLEU_DIR

    if name not in DATASETS:
        close = [known for known in sorted(DATASETS) if known.startswith(name[:5])]
        raise UsageError(
            f"test set {name!r}: sacreBLEU has none of this name. Choose from {', '.join(close or DATASETS)}."
        )
    test_set = DATASETS[name]
    if pair not in test_set.langpairs:
        pairs = ", ".join(sorted(test_set.langpairs))
        raise UsageError(
            f"test set {name} has no languages {pair or '(none given)'}. Give {option('language_pair')}: {pairs}."
        )
    try:
        source, references = test_set.get_source_file(pair), test_set.get_reference_files(pair)
    except (Exception, SystemExit) as error:  # the latter when sacreBLEU cannot reach the network
        raise UsageError(
            f"test set {name} is not in {SACREBLEU_DIR}/{name} and cannot be fetched "
            f"({str(error).strip() or type(error).__name__}). On a machine with network run sacrebleu -t {name} "
            f"-l {pair} --echo src, and copy that folder here."
        ) from error
    return tuple(read_lines(source)), tuple(tuple(read_lines(path)) for path in references)
