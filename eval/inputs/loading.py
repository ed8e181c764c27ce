"""Loading of a plan's texts: plain text, logs of fairseq, test sets of sacreBLEU, all of them checked at once."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeVar

from posnet_eval.inputs.hygiene import UNSPACED, can_be, first_misaligned_line, unspaced_script
from posnet_eval.inputs.plan import Lines, Plan, TestSet, Text
from posnet_eval.metrics import get_metric
from posnet_eval.metrics.base import WITHOUT_SPACES, MetricOptions
from posnet_fairseq.shared.errors import UsageError, counted, option, visible
from posnet_fairseq.shared.files import is_blank, read_lines
from posnet_fairseq.shared.progress import shown
from posnet_fairseq.text.languages import BLEU_TOKENIZERS, bleu_tokenizer, code_of, tag_of
from posnet_fairseq.text.plain import PlainText, plain_lines

_HYPOTHESIS = re.compile(r"^(?P<kind>[HD])-(?P<number>\d+)\t(?P<score>-?[\d.einfa+-]+)\t(?P<text>.*)$")
_COMPANION = re.compile(r"^(?P<kind>[STWP])-(?P<number>\d+)\t")  # source, target, seconds, scores of tokens
_SPLIT_ALL = ("flores200", "flores101", "spm", "spBLEU-1K", "char")  # sacreBLEU's tokenizers of all scripts
MOST_GROUPS = 20
Found = TypeVar("Found")


@dataclass(frozen=True)
class Texts:
    """The lines of a test set."""

    name: str  # in tables
    languages: tuple[str, str]  # source and target language, "" if not known
    sources: Lines  # N lines, or none
    references: tuple[Lines, ...]  # N lines for each reference translation, of which there may be none
    outputs: Mapping[str, tuple[Lines, ...]]  # {system: N lines for each run}
    missing: Mapping[str, str]  # {system: why it has no output}
    groups: Lines  # N names of groups, or none

    @property
    def references_of_lines(self) -> list[Lines]:
        """The reference translations of each line: of several texts, those in which the line is not empty."""
        if not self.references:
            return [()] * len(self.sources)
        if len(self.references) == 1:
            return list(zip(*self.references, strict=True))
        return [tuple(line for line in of_line if not is_blank(line)) for of_line in zip(*self.references, strict=True)]

    @property
    def first_references(self) -> Lines:
        """The first reference translation of each line, "" where it has none; empty if there are none."""
        return tuple((*of_line, "")[0] for of_line in self.references_of_lines) if self.references else ()

    @property
    def size(self) -> int:
        """N, the number of segments."""
        return len(self.references[0] if self.references else self.sources)


def load(plan: Plan) -> list[Texts]:
    """Return the texts of each test set of a plan, or refuse all that is wrong with any file in one text."""
    loader = _Loader(plan)
    texts = [loader.load(test_set) for test_set in plan.test_sets]
    if not loader.problems and not any(one.outputs for one in texts):
        loader.problems.append("no system has an output. Check the paths.")
    refuse(loader.problems)
    return texts


def refuse(problems: Sequence[str]) -> None:
    """Raise a UsageError that lists all problems, if there are any."""
    if problems:
        raise UsageError("\n".join(["nothing was scored.", *(f"  - {text}" for text in problems)]))


class _Loader:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.problems: list[str] = []

    def load(self, test_set: TestSet) -> Texts:
        named = [
            (f"reference {text if isinstance(text, Path) else number}", text)
            for number, text in enumerate(test_set.references, 1)
        ]
        sources, references = self._sources_and_references(test_set, named)
        if len(references) > 1 and len(set(map(len, references))) == 1:
            self._check_every_line(test_set, references)
        given, what = (references[0], "reference") if references else (sources, "source")
        outputs, missing = {}, {}
        for system in self._plan.systems:
            runs = test_set.outputs.get(system, ())
            files = [run for run in runs if isinstance(run, Path) and str(run) != "-"]
            absent = [visible(shown(run)) for run in files if not os.path.exists(run)]
            if runs and not absent:
                outputs[system] = tuple(self._output(system, runs, number, given, what) for number in range(len(runs)))
                continue
            missing[system] = f"there is no {absent[0]}" if absent else f"no output is given for {test_set.name}"
            if not self._plan.skip_missing:
                self.problems.append(
                    f"system {system}: {missing[system]}. Translate it, or leave it out with {option('skip_missing')}."
                )
        said = list(chain(*outputs.values()))
        if any(said):
            for lines, (name, _) in zip(references, named, strict=False):  # sacreBLEU's own need no check
                self._check_subwords(name, lines, chain(*said))
        languages = test_set.languages
        if not (test_set.sacrebleu_name or any(languages)):
            texts = (test_set.source, sources), next(zip(test_set.references, references, strict=False), (None, ()))
            first, second = (_language(text, lines) for text, lines in texts)
            languages = first, second
        if references:
            self._check_language(languages[1], references[0], test_set.name)
        groups = () if test_set.groups is None else self._groups(test_set.groups, given, what)
        return Texts(test_set.name, languages, sources, references, outputs, missing, groups)

    def _output(self, system: str, runs: Sequence[Text], number: int, given: Lines, what: str) -> Lines:
        run, several = runs[number], len(runs) > 1
        name = f"system {system}" + (f": {run}" if isinstance(run, Path) else f", run {number + 1}" if several else "")
        lines = self._read(read_output, run, name)
        if lines is not None and given:
            self._check_length(name, lines, given, what)
            self._check_subwords(name, lines, given)
        return lines or ()

    def _sources_and_references(
        self, test_set: TestSet, named: Sequence[tuple[str, Text]]
    ) -> tuple[Lines, tuple[Lines, ...]]:
        """Return source and references, empty if they cannot be read."""
        if test_set.sacrebleu_name:
            pair = "-".join(test_set.languages).strip("-")
            return self._noted(lambda: read_test_set(test_set.sacrebleu_name, pair)) or ((), ())
        if test_set.source is not None:
            name = f"source {test_set.source}" if isinstance(test_set.source, Path) else "the source"
            named = [*named, (name, test_set.source)]
        texts: list[Lines] = []
        for name, text in named:
            lines = self._read(read_lines, text, name)
            if lines == ():
                self.problems.append(f"{name} is empty. Give one with text.")
            elif lines is not None and texts and texts[0]:
                self._check_length(name, lines, texts[0], "reference")
            texts.append(lines or ())
        if not all(texts):
            return (), ()
        return (texts[-1], tuple(texts[:-1])) if test_set.source is not None else ((), tuple(texts))

    def _groups(self, text: Text, given: Lines, what: str) -> Lines:
        name = f"groups {text}" if isinstance(text, Path) else "the list of groups"
        lines = self._read(read_lines, text, name)
        if lines is None or not given:
            return ()
        groups = tuple(map(str.strip, lines))
        count, expected = len(set(groups)), len(given)
        odd = next((line for line, group in enumerate(groups, 1) if not group or not group.isprintable()), 0)
        if count > MOST_GROUPS:
            problem = f"{count:,} groups"
        elif len(groups) != expected:
            problem = counted(len(groups), "line")
        elif odd:
            problem = f"no name, or invisible characters, in line {odd:,}"
        else:
            return groups
        self.problems.append(
            f"{name}: {problem}. Give the name of a group, in visible characters, for each of the {expected:,} lines "
            f"of the {what}, and {MOST_GROUPS} groups at most."
        )
        return ()

    def _read(self, read: Callable[[Path], Iterable[str]], text: Text, name: str) -> Lines | None:
        """Return the lines of a text, or None, and note why it cannot be used."""
        return self._noted(lambda: tuple(plain_lines(read(text), name)) if isinstance(text, Path) else text)

    def _noted(self, read: Callable[[], Found]) -> Found | None:
        try:
            return read()
        except UsageError as error:
            self.problems.append(str(error))
            return None

    def _check_length(self, name: str, lines: Lines, given: Lines, what: str) -> None:
        if len(lines) != len(given):
            first = first_misaligned_line(lines, given)
            self.problems.append(
                f"{name} has {counted(len(lines), 'line')}, the {what} {len(given):,}; line {first:,} is the "
                "first that seems out of step."
            )

    def _check_every_line(self, test_set: TestSet, references: Sequence[Lines]) -> None:
        """Refuse lines without a reference, of several, if a metric reads any."""
        empty = [number for number, line in enumerate(zip(*references, strict=True), 1) if all(map(is_blank, line))]
        if empty and any(get_metric(name, MetricOptions()).needs_reference for name in self._plan.metrics):
            are, have = ("is", "this line has") if len(empty) == 1 else ("are", "these lines have")
            fix = "Write one into any of them, or leave it out of all files, line by line"
            if test_set.sacrebleu_name:
                fix = f"Give files without such lines by {option('source')} and {option('reference')}"
            self.problems.append(
                f"{counted(len(empty), 'line')} {are} empty in all references of {test_set.name}, the first is line "
                f"{empty[0]:,}, so {have} no reference. {fix}, or {option('metrics')} comet-kiwi alone."
            )

    def _check_subwords(self, name: str, lines: Lines, others: Iterable[str]) -> None:
        """Refuse a text with the marks of BPE (``@@``) or SentencePiece (``▁``) where other texts are plain."""
        if PlainText(lines).is_segmented and not PlainText(others).is_segmented:
            self.problems.append(
                f"{name} is split into subwords (@@ or ▁), and scores are meant for plain text. Translate with "
                "posnet-translate, with fairseq-generate --remove-bpe (sentencepiece for ▁), or join the subwords "
                "and detokenize."
            )

    def _check_language(self, language: str, reference: Lines, name: str) -> None:
        """Refuse metrics that would take whole lines for words."""
        tokenizer, metrics = self._plan.tokenize, self._plan.metrics
        script = unspaced_script(reference)
        if script is None or tokenizer == "none" or (script == "HANGUL" and tokenizer):
            return
        looks, codes = UNSPACED[script]
        own = {code: BLEU_TOKENIZERS[code] for code in codes}
        code = code_of(language)
        start = f"the reference of {name} looks {looks}"
        unsplit = f"{start}, whose words are not split"

        def give(codes: Iterable[str]) -> str:
            pairs = " or ".join(f"en-{code}" for code in codes)
            flag = option("language_pair")
            return f"Give the pair of languages ({flag}; languages in a configuration file), as {pairs}, or"

        if "bleu" in metrics and (tokenizer or own.get(code)) not in (*own.values(), *_SPLIT_ALL):
            choice = ", ".join(dict.fromkeys((*own.values(), *_SPLIT_ALL)))
            used = tokenizer or bleu_tokenizer(code)[0]
            found = f"{start}, not {language}" if used in _SPLIT_ALL else f"{unsplit} by BLEU's tokenizer {used}"
            self.problems.append(f"{found}. {give(own)} {option('tokenize')}: {choice}, none for words between spaces.")
        if "ter" in metrics and script != "HANGUL" and code not in WITHOUT_SPACES:
            split = [code for code in own if code in WITHOUT_SPACES]
            self.problems.append(
                f"{unsplit} by TER. {give(split) if split else 'Give'} {option('metrics')} without ter."
            )


def _language(text: Text | None, lines: Lines) -> str:
    """Return the language that a file's ending is the tag of, "" if its lines cannot be in it, as German in test.my."""
    tag = tag_of(text) if isinstance(text, Path) else ""
    return tag if can_be(code_of(tag), lines) else ""


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
            f"{path} is a log of fairseq's without a translation of sentence {missing} (counted from 0). Copy it "
            "again if it is cut short, or translate again with --required-batch-size-multiple 1, without "
            "--skip-invalid-size-inputs-valid-test."
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

    test_set = DATASETS.get(name)
    if test_set is None or pair not in test_set.langpairs:
        close = [known for known in sorted(DATASETS) if known.startswith(name[:5])]
        problem = f"sacreBLEU has none of this name. Choose from {', '.join(close or DATASETS)}"
        if test_set:
            pairs = ", ".join(sorted(test_set.langpairs))
            problem = f"it has no languages {pair or '(none given)'}. Give {option('language_pair')}: {pairs}"
        raise UsageError(f"test set {name}: {problem}.")
    try:
        source, references = test_set.get_source_file(pair), test_set.get_reference_files(pair)
    except (Exception, SystemExit) as error:  # the latter when sacreBLEU cannot reach the network
        raise UsageError(
            f"test set {name} is not in {SACREBLEU_DIR}/{name} and cannot be fetched "
            f"({str(error).strip() or type(error).__name__}). On a machine with network run sacrebleu -t {name} "
            f"-l {pair} --echo src, and copy that folder here."
        ) from error
    return tuple(read_lines(source)), tuple(tuple(read_lines(path)) for path in references)
