"""How scores, marks and tests are put into words, the same in every table."""

from posnet_eval.inputs.plan import TESTS
from posnet_eval.report.formats import fact, listed
from posnet_eval.statistics.results import SIGNIFICANT, SYMBOLS


def marks(comparison, test_set, system, metric):
    """Marks of a score in a row, as "†↑‡↓" or "†=", of the same outputs as a baseline."""
    found = comparison.marks(test_set, system, metric)
    return "".join(f"{symbol}{arrow}" for symbol, arrow in found)


def best(test_set, metric):
    """The systems whose score is the best one as it is printed, with one decimal: of equal ones all.

    Args:
        test_set: :class:`posnet_eval.statistics.results.TestSetResult`.
        metric: :class:`posnet_eval.statistics.results.MetricInfo`.
    """
    printed = {system: round(scores[metric.name].value, 1) for system, scores in test_set.scores.items()}
    top = (max if metric.higher_is_better else min)(printed.values())
    return {system for system, value in printed.items() if value == top}


def facts(comparison, system):
    """What the columns before the scores say of a system: list of texts, "–" where they say nothing."""
    return [fact(column.get(system)) for column in comparison.columns.values()]


def languages(test_set):
    """As "en-de", "" if they are not known."""
    return "-".join(language for language in test_set.languages if language)


def title(test_set):
    """A test set in a line."""
    pair = languages(test_set)
    lines = "1 line" if test_set.size == 1 else f"{test_set.size:,} lines"
    return f"{test_set.name}, {pair + ', ' if pair else ''}{lines}"


def test(comparison):
    """The test that was made, in words."""
    if comparison.test == "ar":
        return f"{TESTS['ar']}, {comparison.trials:,} trials, seed {comparison.seed}"
    return f"{TESTS['bs']}, {comparison.resamples:,} resamples, seed {comparison.seed}"


def legend(comparison):
    """What the signs in a table mean: list of sentences."""
    sentences = [f"±: 95% interval ({comparison.resamples:,} bootstrap resamples)."]
    if has_runs(comparison):
        sentences.append(
            "σ: standard deviation over runs, of which the score is the mean; tests are on all runs' lines."
        )
    if baselines(comparison):
        sentences.append(of_marks(comparison))
    lower = {info.label for test_set in comparison.test_sets for info in test_set.metrics if not info.higher_is_better}
    sentences += [f"{label}: lower is better." for label in sorted(lower)]
    return sentences


def baselines(comparison):
    """[(symbol, system)] of those baselines that have been scored."""
    pairs = zip(SYMBOLS, comparison.baselines, strict=False)
    return [(symbol, name) for symbol, name in pairs if any(name in one.scores for one in comparison.test_sets)]


def of_marks(comparison):
    """What the marks mean."""
    against = ", ".join(f"{symbol} {comparison.labels[name]}" for symbol, name in baselines(comparison))
    found = f"Different with p ≤ {SIGNIFICANT} from {against}: ↑ better, ↓ worse, = the same outputs"
    return f"{found} ({test(comparison)})."


def has_runs(comparison):
    """Whether a system has several runs."""
    return any(
        score.deviation is not None
        for test_set in comparison.test_sets
        for scores in test_set.scores.values()
        for score in scores.values()
    )


def signatures(comparison):
    """{signature with its metric's name: test sets that it is of}, in the order of the table."""
    found = {}
    for test_set in comparison.test_sets:
        for info in test_set.metrics:
            found.setdefault(f"{info.label}: {info.signature}", []).append(test_set.name)
    return found


def reproduction(comparison):
    """All that it takes to get the same numbers: list of lines."""
    lines = []
    for signature, names in signatures(comparison).items():
        lines.append(f"{signature} ({', '.join(names)})" if len(comparison.test_sets) > 1 else signature)
    return lines + [f"{package} {version}" for package, version in comparison.versions.items()]


def for_the_paper(comparison):
    """A sentence that a paper can take over."""
    metrics = list(dict.fromkeys(info.label for test_set in comparison.test_sets for info in test_set.metrics))
    versions = " and ".join(f"{name} {comparison.versions[name]}" for name in ("posnet", "sacrebleu"))
    text = f"We report {listed(metrics)}, computed with {versions} on detokenised text."
    if baselines(comparison):
        names = listed([comparison.labels[name] for _, name in baselines(comparison)])
        text += (
            f" Differences from {names} are marked where p ≤ {SIGNIFICANT} ({test(comparison)}), with their direction."
        )
    return text
