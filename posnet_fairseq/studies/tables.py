"""Tables of a study in Markdown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby, takewhile
from operator import attrgetter

from posnet_eval.inputs.plan import RESAMPLES, SEED, SYMBOLS
from posnet_eval.report.wording import GAP, decimal, signed
from posnet_eval.report.wording import markdown_table as _table
from posnet_eval.statistics.results import SIGNIFICANT, Score
from posnet_eval.statistics.significance import Contrast
from posnet_fairseq.studies.analysis import Analysis, JoinedScore
from posnet_fairseq.studies.protocol import Claim, LiteratureBleu
from posnet_fairseq.studies.results import PRECISIONS, RunResult

PARTS = 4  # of the trainings, at whose ends perplexities are compared
COUNTED = ("bleu", "chrf")  # metrics whose significant differences are counted


def markdown(analysis: Analysis) -> str:
    """Return all tables of a study, each below a line in bold that says what it shows."""
    return "\n\n".join(f"**{title}**\n\n{text}" for title, text in _tables(analysis)) + "\n"


def _tables(analysis: Analysis) -> Iterator[tuple[str, str]]:
    for test_set in analysis.test_sets:
        about = f"\n\n{_about_scores(analysis, test_set)}" if test_set == analysis.test_sets[-1] else ""
        title = f"Scores on {analysis.title(test_set)}, {analysis.size(test_set):,} lines"
        yield title, _scores(analysis, test_set) + about
    yield "Validation perplexity at equal updates and at equal CPU time", _courses(analysis)
    for test_set in analysis.test_sets:
        yield f"BLEU by words of the reference, {analysis.title(test_set)}", _lengths(analysis, test_set)
    if joined := analysis.joined:
        title = f"BLEU by the number of sentences joined to a line, {analysis.title(analysis.test_sets[0])}"
        yield title, _joined(joined)
    if analysis.claims:
        yield "Claims of the papers", _claims(analysis)
    if analysis.baselines and len(analysis.systems) > 1:
        yield "Significant differences", _significant(analysis)
        yield "Detectable differences", _power(analysis)
    yield "Inference cost", _costs(analysis)
    yield "Training cost", _effort(analysis)


def _number(value: float | None, form: str = "{:.1f}") -> str:
    return GAP if value is None else form.format(value)


def _scores(analysis: Analysis, test_set: str) -> str:
    """Return scores with intervals and marks, the best system by BLEU first, and published ones below."""
    rows = []
    for system in sorted(analysis.systems, key=lambda system: -analysis.score(system, test_set, "bleu").value):
        seconds = analysis.cpu_seconds(system)
        row = [
            f"`{system}`",
            str(len(analysis.results[system])),
            f"{analysis.mean(system, lambda run: run.model.parameters) / 1e6:.2f}M",
            f"{analysis.mean(system, lambda run: run.training.updates):,.0f}",
            _number(seconds and seconds / 3600, "{:.2f}"),
            f"{analysis.mean(system, lambda run: run.training.best_perplexity):.2f}",
        ]
        for metric in analysis.metrics:
            score, marks = analysis.score(system, test_set, metric), _marks(analysis, system, test_set, metric)
            spread = "" if score.deviation is None else f" σ{score.deviation:.1f}"
            row.append(f"{decimal(score.value)} ±{score.half_width:.1f}{spread} {marks}".strip())
        rows.append(row)
    for other in analysis.study.published:
        if test_set in other.bleu:
            known = [_number(other.updates, "{:,}"), GAP, _number(other.perplexity, "{:.2f}")]
            bleu = {LiteratureBleu.name: other.bleu[test_set]}
            rows.append([other.says, GAP, GAP, *known, *(_number(bleu.get(metric)) for metric in analysis.metrics)])
    labels = [metric.label for metric in analysis.metrics.values()]
    return _table(["", "seeds", "parameters", "updates", "CPU h", "perplexity", *labels], rows)


def _about_scores(analysis: Analysis, test_set: str) -> str:
    marks = ", ".join(f"{symbol} `{name}`" for symbol, name in zip(SYMBOLS, analysis.baselines, strict=False))
    variation = "over sentences and seeds" if analysis.seeds_vary else "over sentences: no system has several seeds"
    if marks:
        marks = f" Different with p ≤ .05 (two-sided, {variation}) from {marks}: ↑ better, ↓ worse."
    signatures = "\n".join(f"`{analysis.signature(test_set, metric)}`" for metric in analysis.metrics)
    return (
        f"Means of the seeds; ±: 95% interval over sentences (paired bootstrap, {RESAMPLES:,} resamples, seed {SEED}); "
        f"σ: standard deviation over seeds.{marks} Perplexity: of the validation set, the least. CPU h: hours of a "
        "core for the updates, without validations, at the cost of an update below. Parameters are those of inference, "
        f"with stored energies.\n{signatures}"
    )


def _marks(analysis: Analysis, system: str, test_set: str, metric: str) -> str:
    marks = ""
    for symbol, baseline in zip(SYMBOLS, analysis.baselines, strict=False):
        if system != baseline:
            contrast = analysis.contrast(system, baseline, test_set, metric)
            if contrast.p <= SIGNIFICANT:
                marks += f"{symbol}{'↑' if contrast.value > 0 else '↓'}"
    return marks


def _courses(analysis: Analysis) -> str:
    """Return perplexities after equal updates, and after equal CPU time, up to the shortest training."""
    last = min(float(analysis.course(system)[0][-1]) for system in analysis.systems)
    parts, least = range(1, PARTS + 1), analysis.least_cpu_seconds
    updates = [last * part / PARTS for part in parts]
    seconds = [least * part / PARTS for part in parts if least]
    rows = [
        [
            f"`{system}`",
            *(_number(analysis.perplexity_at(system, at)) for at in updates),
            *(_number(analysis.perplexity_after(system, at)) for at in seconds),
        ]
        for system in sorted(analysis.systems, key=lambda name: analysis.perplexity_at(name, last) or float("inf"))
    ]
    return _table(["", *(f"{at:,.0f} updates" for at in updates), *(f"{at / 60:.0f} CPU min" for at in seconds)], rows)


def _lengths(analysis: Analysis, test_set: str) -> str:
    groups = analysis.by_length(test_set)
    rows = [
        [f"`{system}`", *(decimal(group.scores[system]["bleu"]) for group in groups)] for system in analysis.systems
    ]
    table = _table(["", *(f"{group.label} ({group.size:,})" for group in groups)], rows)
    return f"{table}\n\nIn parentheses: sentences."


def _with_interval(score: Score | None) -> str:
    return GAP if score is None else f"{decimal(score.value)} ±{score.half_width:.1f}"


def _joined(scores: Mapping[str, Mapping[int, JoinedScore]]) -> str:
    counts = sorted({count for by_count in scores.values() for count in by_count})
    rows = []
    for system, by_count in scores.items():
        known = (by_count.get(count) for count in counts)
        cells = (f"{_with_interval(each.bleu)} ({each.length:.2f})" if each else GAP for each in known)
        rows.append([f"`{system}`", *cells])
    return (
        f"{_table(['', *map(str, counts)], rows)}\n\nNeighboring sentences, joined by spaces, in float32; ±: as above, "
        "over lines. In parentheses: the length of the translations as a share of the references'. Runs that were "
        "made before this was measured are left out, also at 1."
    )


def verdict(claim: Claim, contrast: Contrast, margin: float) -> str:
    """Return whether a claim holds: "yes", "no", "no (better)", "no (worse)" or "cannot say".

    Systems that differ by at most the margin are equally good.
    """
    if claim.expected == "equal":
        if -margin <= contrast.low and contrast.high <= margin:
            return "yes"
        if -margin <= contrast.high and contrast.low <= margin:
            return "cannot say"
        return f"no ({'better' if contrast.value > 0 else 'worse'})"
    if contrast.p > SIGNIFICANT:
        return "cannot say"
    return "yes" if (contrast.value > 0) == (claim.expected == "better") else "no"


def _claims(analysis: Analysis) -> str:
    test_set, margin = analysis.test_sets[0], analysis.study.margin
    rows = []
    for claim in analysis.claims:
        contrast = analysis.contrast(claim.system, claim.other, test_set, "bleu")
        rows.append(
            [
                f"{claim.says} ({claim.source})",
                f"`{claim.system}` − `{claim.other}`",
                signed(contrast.value, 1),
                f"{signed(contrast.low, 1)} … {signed(contrast.high, 1)}",
                "< .001" if contrast.p < 0.001 else f"{contrast.p:.3f}".removeprefix("0"),
                signed(analysis.contrast(claim.system, claim.other, test_set, "chrf").value, 1),
                verdict(claim, contrast, margin) if analysis.seeds_vary else "cannot say (one seed)",
            ]
        )
    foot = "Intervals and p include the variation over sentences only: no system has several seeds yet."
    if analysis.seeds_vary:
        directed = sum(claim.expected != "equal" for claim in analysis.claims)
        foot = (
            "Intervals and p include the variation over sentences and over seeds (their standard deviation, pooled "
            "over all systems). Better or worse: p ≤ .05; as good: the whole interval lies within "
            f"±{margin:.1f} BLEU. Of the claims of better and worse ({directed}), {SIGNIFICANT * directed:.2f} would "
            "seem to hold or to fail by chance if no systems differed."
        )
    table = _table(["claim", "systems", "BLEU", "95% interval", "p", "chrF", "holds here"], rows)
    return f"{table}\n\nDifferences on {analysis.title(test_set)}. {foot}"


def _pairs(analysis: Analysis) -> list[tuple[str, str]]:
    """Return each system with each baseline, two baselines once."""
    return [
        (system, baseline)
        for place, baseline in enumerate(analysis.baselines)
        for system in analysis.systems
        if system not in analysis.baselines[: place + 1]
    ]


def _significant(analysis: Analysis) -> str:
    """Return how many differences are significant, and how many still are if all tests count as one family."""
    values: dict[tuple[str, str], list[float]] = {}
    for name in COUNTED:
        for system, baseline in _pairs(analysis):
            of_pair = values.setdefault((f"`{baseline}`", analysis.metrics[name].label), [])
            of_pair.extend(analysis.contrast(system, baseline, each, name).p for each in analysis.test_sets)
    values["all", ""] = [*chain.from_iterable(values.values())]
    rows = [
        [*of, str(len(p)), str(sum(each <= SIGNIFICANT for each in p)), f"{SIGNIFICANT * len(p):.1f}", str(holm(p))]
        for of, p in values.items()
    ]
    table = _table(["from", "metric", "tests", "p ≤ .05", "by chance", "after Holm's correction"], rows)
    about = "By chance: the expected number of significant differences if all systems were equally good."
    return f"{table}\n\nOver all test sets. {about}"


def holm(values: Sequence[float]) -> int:
    """Return how many of M values of p are significant after Holm's correction (Holm 1979).

    The k-th least, counted from 0, must be at most .05 / (M − k), and all before it as well.
    """
    within = (p <= SIGNIFICANT / (len(values) - place) for place, p in enumerate(sorted(values)))
    return sum(1 for _ in takewhile(bool, within))


def _power(analysis: Analysis) -> str:
    """Return the errors of differences from a baseline, by the numbers of seeds of both."""

    def seeds(pair: tuple[str, str]) -> tuple[int, int]:
        return len(analysis.results[pair[0]]), len(analysis.results[pair[1]])

    pairs = _pairs(analysis)
    rows = []
    for test_set in analysis.test_sets:
        for name, metric in analysis.metrics.items():
            spread = analysis.seed_variance(test_set, name).deviation
            for (first, second), alike in groupby(sorted(pairs, key=seeds), seeds):
                contrasts = [analysis.contrast(*pair, test_set, name) for pair in alike]
                middle = sorted(contrasts, key=attrgetter("error"))[len(contrasts) // 2]
                cells = [analysis.title(test_set), metric.label, _number(spread, "{:.2f}"), f"{first} and {second}"]
                rows.append([*cells, f"{middle.error:.2f}", _number(None if spread is None else middle.detectable)])
    table = _table(["test set", "metric", "σ over seeds", "seeds", "standard error", "detectable"], rows)
    return (
        f"{table}\n\nFor each combination of seed counts: the median standard error of differences from a baseline, "
        "and the smallest true difference that would be found (p ≤ .05) with a probability of 80%; unknown without σ."
    )


def _costs(analysis: Analysis) -> str:
    test_set, rows = analysis.test_sets[0], []
    for system in analysis.systems:
        row = [
            f"`{system}`",
            f"{analysis.mean(system, lambda run: run.model.folder_bytes) / 2**20:.1f}",
            _by_run(analysis, system, lambda run: run.search.beam),
        ]
        for precision in PRECISIONS:
            times = analysis.translation_seconds(system, test_set, precision)
            row.append(" ".join(_number(seconds and analysis.size(test_set) / seconds) for seconds in times))
        first, second = (analysis.score(system, test_set, "bleu", precision).value for precision in PRECISIONS)
        rows.append([*row, decimal(first), decimal(second), signed(second - first)])
    head = ["", "folder, MiB", "beam", "sentences per CPU s", "int8", "BLEU", "int8", "difference"]
    return (
        f"{_table(head, rows)}\n\n"
        f"Translation of {analysis.title(test_set)}, run by run, with the beam that each chose: larger beams take "
        "longer. Seconds of a core, with the start of the program, while other programs ran; scaled to equally fast "
        f"machines by the time of an update of `{analysis.study.baselines[0]}`, measured after each training."
    )


def _by_run(analysis: Analysis, system: str, figure: Callable[[RunResult], float | None], form: str = "{}") -> str:
    return " ".join(_number(figure(run), form) for run in analysis.results[system])


def _effort(analysis: Analysis) -> str:
    def hours(run: RunResult) -> float | None:
        seconds = run.training.cpu_seconds_per_update
        return seconds and seconds * run.training.updates / 3600

    rows = [
        [
            f"`{system}`",
            _by_run(analysis, system, lambda run: run.seed),
            _by_run(analysis, system, lambda run: run.training.updates, "{:,}"),
            _by_run(analysis, system, lambda run: run.training.best_update, "{:,}"),
            _by_run(analysis, system, lambda run: run.training.attempts),
            _by_run(analysis, system, lambda run: run.training.cost.relative if run.training.cost else None, "{:.2f}"),
            _by_run(analysis, system, hours, "{:.2f}"),
        ]
        for system in analysis.systems
    ]
    known = filter(None, map(hours, chain.from_iterable(analysis.results.values())))
    baseline, seconds = f"`{analysis.study.baselines[0]}`", _number(analysis.baseline_seconds, "{:.2f}")
    return (
        f"{_table(['', 'seeds', 'updates', 'best at', 'attempts', 'cost of an update', 'CPU h spent'], rows)}\n\n"
        f"Cost: CPU time relative to an update of {baseline}, which takes {seconds} s in the median; "
        f"{baseline} against itself shows how exact that is. Spent: as the logs say, with validations, on machines "
        f"with other programs beside the trainings; {sum(known):.1f} hours of a core for all but trainings on GPUs."
    )
