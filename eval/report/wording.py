"""Wording of marks, tests and signatures that all tables share."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from posnet_eval.inputs.plan import SEEDS, SYMBOLS, TESTS, Fact
from posnet_eval.statistics.results import SIGNIFICANT, Comparison, MetricInfo, TestSetResult
from posnet_fairseq.shared.errors import counted
from posnet_fairseq.shared.progress import shown

GAP = "–"  # shown where there is no value
_FALSELY_MARKED = {"shift": "5%", "bs": "11%", "ar": "5%"}  # in either direction, as measured


def decimal(value: float, digits: int = 1) -> str:
    """Return a number with a typographic minus sign and no negative zero: "−1.2"."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def signed(value: float, digits: int = 2) -> str:
    """Return a number with its sign: "+1.23"."""
    return f"+{decimal(value, digits)}" if value > 0 else decimal(value, digits)


def probability(value: float | None) -> str:
    """Return a p-value as "0.0123", None as "–"."""
    if value is None:
        return GAP
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"


def fact(value: Fact | None) -> str:
    """Return a fact about a system: an integer as "2,815", other values unchanged, None as "–"."""
    if value is None:
        return GAP
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, whose columns but the first are of numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def listed(words: Iterable[str]) -> str:
    """Return words as "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def marks(comparison: Comparison, test_set: TestSetResult, system: str, metric: str) -> str:
    """Return the marks of a score, as "†↑‡↓", or "†=" for outputs equal to a baseline's."""
    return "".join(f"{symbol}{arrow}" for symbol, arrow in comparison.marks(test_set, system, metric))


def best(test_set: TestSetResult, metric: MetricInfo) -> set[str]:
    """Return all systems with the best score, as rounded to the one decimal that tables print."""
    printed = {system: round(scores[metric.name].value, 1) for system, scores in test_set.scores.items()}
    top = (max if metric.higher_is_better else min)(printed.values())
    return {system for system, value in printed.items() if value == top}


def facts(comparison: Comparison, system: str) -> list[str]:
    """Return the texts of a system in the columns before the scores, "–" where it has none."""
    return [fact(column.get(system)) for column in comparison.columns.values()]


def languages(test_set: TestSetResult) -> str:
    """Return the languages as "en-de", "" if they are not known."""
    return "-".join(language for language in test_set.languages if language)


def title(test_set: TestSetResult) -> str:
    """Return name, languages and number of lines of a test set."""
    pair = languages(test_set)
    return f"{test_set.name}, {pair + ', ' if pair else ''}{counted(test_set.size, 'line')}"


def significance_test(comparison: Comparison) -> str:
    """Return the name and settings of the significance test."""
    if comparison.test != SEEDS:
        is_ar = comparison.test == "ar"
        count = counted(comparison.trials, "trial") if is_ar else counted(comparison.resamples, "resample")
        return (
            f"{TESTS[comparison.test]} over sentences, not training seeds, {count}, seed {comparison.seed}; it marks "
            f"about {_FALSELY_MARKED[comparison.test]} of equally good translations"
        )
    with_seeds = [test_set for test_set in comparison.test_sets if test_set.seed_freedom]
    freedom = listed(dict.fromkeys(str(test_set.seed_freedom) for test_set in with_seeds))
    text = (
        f"over sentences and training seeds: {TESTS['bs']}, {comparison.resamples:,} resamples, seed "
        f"{comparison.seed}, and standard deviation over runs, pooled over systems; two-sided, Student's t, "
        f"degrees of freedom: {freedom} or more"
    )
    without = _without_seeds(comparison)
    return f"{text}; not on {listed(without)}, where no system has several runs" if without else text


def interval(comparison: Comparison) -> str:
    """Return what the 95% intervals of scores are over."""
    over = f"sentences{' and' if comparison.test == SEEDS else ', not'} training seeds"
    without = _without_seeds(comparison) if comparison.test == SEEDS else []
    only = f"; on {listed(without)} over sentences only" if without else ""
    return f"95% interval over {over} ({comparison.resamples:,} bootstrap resamples{only})"


def _without_seeds(comparison: Comparison) -> list[str]:
    """Return the names of the test sets of which no system has several runs."""
    return [test_set.name for test_set in comparison.test_sets if not test_set.seed_freedom]


def legend(comparison: Comparison) -> list[str]:
    """Return sentences that explain the signs in a table, and its notes."""
    sentences = [f"±: {interval(comparison)}."]
    if has_several_runs(comparison):
        sentences.append("σ: standard deviation over runs, of which the score is the mean.")
    if baselines(comparison):
        sentences.append(meaning_of_marks(comparison))
    lower = {info.label for test_set in comparison.test_sets for info in test_set.metrics if not info.higher_is_better}
    sentences += [f"{label}: lower is better." for label in sorted(lower)]
    return [*sentences, *comparison.notes]


def remarks(comparison: Comparison) -> list[str]:
    """Return the systems that are missing, and the remarks on the data."""
    lines = [
        f"missing: {comparison.labels[system]} on {test_set.name}: {why}"
        for test_set in comparison.test_sets
        for system, why in test_set.missing.items()
    ]
    for test_set in comparison.test_sets:
        for remark in test_set.remarks:
            where = f"{comparison.labels[remark.system]} on {test_set.name}" if remark.system else test_set.name
            numbers = f" ({', '.join(map(str, remark.lines))})" if remark.lines else ""
            lines.append(f"note: {where}: {remark.text}{numbers}")
    return lines


def baselines(comparison: Comparison) -> list[tuple[str, str]]:
    """Return (symbol, system) of the baselines that a system has been compared with."""
    pairs = zip(SYMBOLS, comparison.baselines, strict=False)
    scored = [one.scores for one in comparison.test_sets if len(one.scores) > 1]
    return [(symbol, name) for symbol, name in pairs if any(name in systems for systems in scored)]


def meaning_of_marks(comparison: Comparison) -> str:
    """Return a sentence that explains the marks."""
    against = ", ".join(f"{symbol} {comparison.labels[name]}" for symbol, name in baselines(comparison))
    found = f"Significantly different (p ≤ {SIGNIFICANT}) from {against}: ↑ better, ↓ worse, = identical outputs"
    return f"{found} ({significance_test(comparison)})."


def has_several_runs(comparison: Comparison) -> bool:
    """Return whether any system has several runs."""
    return any(test_set.seed_freedom for test_set in comparison.test_sets)


def signatures(comparison: Comparison) -> dict[str, list[str]]:
    """Return {metric and signature: names of its test sets}, in the order of the table."""
    found: dict[str, list[str]] = {}
    for test_set in comparison.test_sets:
        for info in test_set.metrics:
            found.setdefault(f"{info.label}: {info.signature}", []).append(test_set.name)
    return found


def reproduction(comparison: Comparison) -> list[str]:
    """Return lines with the signatures and versions that are needed to reproduce the scores."""
    lines = []
    for signature, names in signatures(comparison).items():
        lines.append(f"{signature} ({', '.join(names)})" if len(comparison.test_sets) > 1 else signature)
    return lines + [f"{package} {version}" for package, version in comparison.versions.items()]


def whereabouts(folder: Path, left: int) -> str:
    """Return a sentence that says where a report is, and how many remarks are only there."""
    more = f" {counted(left, 'more remark')} and" if left else ""
    others = "also .md, .tex, .csv, .json and segments.tsv"
    return f"report: {shown(folder)}/report.html has{more} the signatures ({others})"


def for_paper(comparison: Comparison) -> str:
    """Return a description of scores and tests for a paper."""
    metrics = list(dict.fromkeys(info.label for test_set in comparison.test_sets for info in test_set.metrics))
    versions = " and ".join(f"{name} {comparison.versions[name]}" for name in ("posnet", "sacrebleu"))
    signed = " ".join(each for each in signatures(comparison) if not each.startswith("TER"))  # TER ignores case
    kinds = ["lowercased"] * ("case:lc" in signed) + ["detokenized"] * ("tok:none" not in signed)
    texts = f" on {', '.join(kinds)} text" if kinds else ""
    text = f"We report {listed(metrics)}, computed with {versions}{texts}."
    if baselines(comparison):
        names = listed([comparison.labels[name] for _, name in baselines(comparison)])
        test = significance_test(comparison)
        text += f" Differences from {names} are marked where p ≤ {SIGNIFICANT} ({test}), with their direction."
    return text
