"""The texts of a plan, all of them checked before anything is computed."""

import re
from dataclasses import dataclass

from posnet_eval.inputs.similarity import first_out_of_step
from posnet_eval.inputs.texts import read_output, read_test_set
from posnet_fairseq.shared.errors import UsageError, visible
from posnet_fairseq.shared.files import read_lines
from posnet_fairseq.shared.progress import shown

_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True)
class Texts:
    """The lines of a test set.

    Attributes:
        name, languages: see :class:`posnet_eval.inputs.plan.TestSet`.
        sources: N lines, or none.
        references: N lines for each reference translation.
        outputs: {system: runs, each N lines}.
        missing: {system: why there is no output}.
    """

    name: str
    languages: tuple[str, str]
    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]
    outputs: dict
    missing: dict


def load(plan, skip_missing=False):
    """Read and check all files of a plan.

    Args:
        plan: :class:`posnet_eval.inputs.plan.Plan`.
        skip_missing: leave systems out whose files are missing, instead of refusing.

    Returns:
        list of :class:`Texts`.

    Raises:
        UsageError: of everything that is wrong with any file, in one text.
    """
    loader = _Loader(skip_missing)
    texts = [loader.test_set(test_set, plan) for test_set in plan.test_sets]
    if not loader.problems and not any(one.outputs for one in texts):
        loader.problems.append("no system has an output. Check the paths.")
    refuse(loader.problems)
    return texts


def refuse(problems):
    """Say all that is wrong at once.

    Raises:
        UsageError: there are problems.
    """
    if problems:
        raise UsageError("\n".join(["nothing was scored.", *(f"  - {text}" for text in problems)]))


class _Loader:
    def __init__(self, skip_missing):
        self._skip_missing = skip_missing
        self.problems = []

    def test_set(self, test_set, plan):
        sources, references = self._given(test_set)
        outputs, missing = {}, {}
        for system in plan.systems:
            paths = test_set.outputs.get(system, ())
            absent = [path for path in paths if not path.exists()]
            if not paths or absent:
                absent_one = visible(shown(absent[0])) if absent else ""
                what = f"there is no {absent_one}" if absent else f"no output is given for {test_set.name}"
                missing[system] = what
                if not self._skip_missing:
                    self.problems.append(f"system {system}: {what}. Translate it, or leave it out with --skip-missing.")
                continue
            runs = [self._read(read_output, path) for path in paths]
            for path, lines in zip(paths, runs, strict=True):
                if lines is not None and references and len(lines) != len(references[0]):
                    self._uneven(f"system {system}: {path}", lines, references[0])
            outputs[system] = tuple(runs)
        languages = self._languages(test_set)
        self._check_language(languages, references, plan, test_set.name)
        return Texts(test_set.name, languages, sources, references, outputs, missing)

    def _given(self, test_set):
        if test_set.known:
            try:
                sources, references = read_test_set(test_set.known, "-".join(test_set.languages).strip("-"))
            except UsageError as error:
                self.problems.append(str(error))
                return (), ()
        else:
            sources = self._read(read_lines, test_set.source) if test_set.source else ()
            references = [self._read(read_lines, path) for path in test_set.references]
            if sources is None or None in references:
                return (), ()
            for path, lines in zip(test_set.references, references, strict=True):
                if not lines:
                    self.problems.append(f"reference {path} is empty. Give one with text.")
                elif len(lines) != len(references[0]):
                    self._uneven(f"reference {path}", lines, references[0])
            if test_set.source and references[0] and len(sources) != len(references[0]):
                self._uneven(f"source {test_set.source}", sources, references[0])
        return tuple(sources), tuple(map(tuple, references))

    def _read(self, read, path):
        try:
            return tuple(read(path))
        except UsageError as error:
            self.problems.append(str(error))
            return None

    def _uneven(self, what, lines, reference):
        line = first_out_of_step(lines, reference)
        self.problems.append(
            f"{what} has {len(lines):,} lines, the reference {len(reference):,}; line {line:,} is the first that seems "
            "out of step."
        )

    def _languages(self, test_set):
        """What was said, else two-letter endings of the files."""
        if any(test_set.languages) or test_set.known:
            return test_set.languages
        files = (test_set.source, test_set.references[0])
        return tuple(path.suffix[1:] if path and re.fullmatch(r"\.[a-z]{2}", path.suffix) else "" for path in files)

    def _check_language(self, languages, references, plan, name):
        if languages[1] or plan.tokenize or not references or not {"bleu", "ter"} & set(plan.metrics):
            return
        asian = sum(bool(_ASIAN.search(line)) for line in references[0])
        if asian > len(references[0]) / 2:
            self.problems.append(
                f"the reference of {name} looks Chinese, Japanese or Korean, which are split into words in their own "
                "ways. Say which with --language-pair (languages, in a configuration file), as en-zh."
            )
