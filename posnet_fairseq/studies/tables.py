"""Tables of a study in Markdown."""

from collections.abc import Callable, Iterator, Sequence

from posnet_eval.inputs.plan import SYMBOLS
from posnet_eval.report.formats import GAP, decimal, signed
from posnet_eval.statistics.seeds import Contrast
from posnet_fairseq.studies.analysis import RESAMPLES, SEED, Analysis
from posnet_fairseq.studies.form import PRECISIONS
from posnet_fairseq.studies.protocol import Claim

PARTS = 4  # of the trainings, at whose ends perplexities are compared
SIGNIFICANT = 0.05

Row = Sequence[str]


def markdown(analysis: Analysis) -> str:
    """All tables of a study, each below a line in bold that says what it shows."""
    return "\n\n".join(f"**{title}**\n\n{text}" for title, text in _tables(analysis)) + "\n"


def _tables(analysis: Analysis) -> Iterator[tuple[str, str]]:
    *others, last = analysis.test_sets
    for test_set in others:
        yield f"Scores on {_size(analysis, test_set)}", _scores(analysis, test_set)
    yield f"Scores on {_size(analysis, last)}", f"{_scores(analysis, last)}\n\n{_about_scores(analysis, last)}"
    yield "Validation perplexity at equal updates and at equal CPU time", _courses(analysis)
    for test_set in analysis.test_sets:
        yield f"BLEU by words of the reference, {analysis.title(test_set)}", _lengths(analysis, test_set)
    yield "Claims of the papers", _claims(analysis)
    yield "Differences that could have been found", _power(analysis)
    yield "What users pay for", _costs(analysis)
    yield "What the trainings took", _effort(analysis)


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _size(analysis: Analysis, test_set: str) -> str:
    size = analysis.statistics(analysis.systems[0], test_set, "bleu").shape[1]
    return f"{analysis.title(test_set)}, {size:,} lines"


def _number(value: float | None, shown: Callable[[float], str] = decimal) -> str:
    return GAP if value is None else shown(value)


def _label(name: str) -> str:
    return f"`{name}`"


def _scores(analysis: Analysis, test_set: str) -> str:
    """Scores with intervals and marks, the best system by BLEU first."""
    head = ["", "seeds", "parameters", "updates", "CPU h", "perplexity"]
    head += [metric.label for metric in analysis.metrics.values()]
    scores = {
        system: [analysis.score(system, test_set, metric) for metric in analysis.metrics] for system in analysis.systems
    }
    rows = []
    for system in sorted(scores, key=lambda name: -scores[name][0].value):
        hours = analysis.cpu_seconds(system)
        cells = [
            _label(system),
            str(len(analysis.seeds(system))),
            _number(analysis.mean(system, "model", "parameters"), lambda number: f"{number / 1e6:.2f}M"),
            _number(analysis.mean(system, "training", "updates"), lambda number: f"{number:,.0f}"),
            _number(hours and hours / 3600, lambda number: f"{number:.2f}"),
            _number(analysis.mean(system, "training", "best_perplexity"), lambda number: f"{number:.2f}"),
        ]
        for metric, score in zip(analysis.metrics, scores[system], strict=True):
            parts = [decimal(score.value), f"±{score.half_width:.1f}"]
            parts += [f"σ{score.deviation:.1f}"] if score.deviation is not None else []
            cells.append(" ".join([*parts, _marks(analysis, system, test_set, metric)]).strip())
        rows.append(cells)
    return _table(head, rows)


def _about_scores(analysis: Analysis, test_set: str) -> str:
    marks = ", ".join(f"{symbol} {_label(name)}" for symbol, name in zip(SYMBOLS, analysis.baselines, strict=False))
    if marks:
        marks = f" Different with p ≤ .05 (two-sided, as of claims below) from {marks}: ↑ better, ↓ worse."
    signatures = "\n".join(f"`{analysis.signature(test_set, metric)}`" for metric in analysis.metrics)
    return (
        f"Means of the seeds; ±: 95% interval over sentences (paired bootstrap, {RESAMPLES:,} resamples, seed {SEED}); "
        f"σ: standard deviation over seeds.{marks} Perplexity: of the validation set, the least. CPU h: hours of a "
        "core for the updates, without validations, at the cost of an update below. Parameters are those of inference, "
        "with stored energies.\n" + signatures
    )


def _marks(analysis: Analysis, system: str, test_set: str, metric: str) -> str:
    marks = ""
    for symbol, baseline in zip(SYMBOLS, analysis.baselines, strict=False):
        if system != baseline:
            found = analysis.contrast(system, baseline, test_set, metric)
            if found.p <= SIGNIFICANT:
                marks += f"{symbol}{'↑' if found.value > 0 else '↓'}"
    return marks


def _courses(analysis: Analysis) -> str:
    """Perplexities after equal updates, and after equal CPU time, up to the shortest training."""
    last = min(float(analysis.course(system)[0][-1]) for system in analysis.systems)
    updates = [last * part / PARTS for part in range(1, PARTS + 1)]
    least = analysis.least_cpu_seconds
    seconds = [least * part / PARTS for part in range(1, PARTS + 1)] if least else []
    head = [
        "",
        *(f"{number:,.0f} updates" for number in updates),
        *(f"{number / 60:.0f} CPU min" for number in seconds),
    ]

    def end(system: str) -> float:
        return analysis.perplexity_at(system, last) or float("inf")

    rows = [
        [
            _label(system),
            *(_number(analysis.perplexity_at(system, number)) for number in updates),
            *(_number(analysis.perplexity_after(system, number)) for number in seconds),
        ]
        for system in sorted(analysis.systems, key=end)
    ]
    return _table(head, rows)


def _lengths(analysis: Analysis, test_set: str) -> str:
    groups = analysis.by_length(test_set, "bleu")
    head = ["", *(f"{words} ({size:,})" for words, size, _ in groups)]
    rows = [[_label(name), *(decimal(scores[name]) for _, _, scores in groups)] for name in analysis.systems]
    return f"{_table(head, rows)}\n\nIn parentheses: sentences."


def verdict(claim: Claim, contrast: Contrast, margin: float) -> str:
    """Whether a claim holds: "yes", "no", "no (better)", "no (worse)" or "cannot say".

    Args:
        claim: of a paper.
        contrast: of its two systems.
        margin: the largest difference of systems that are equally good.
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
    seeds_vary = analysis.seed_variance(test_set, "bleu").deviation is not None
    head = ["claim", "systems", "BLEU", "95% interval", "p", "chrF", "holds here"]
    rows = []
    claims = [claim for claim in analysis.study.claims if {claim.system, claim.other} <= set(analysis.systems)]
    for claim in claims:
        found = analysis.contrast(claim.system, claim.other, test_set, "bleu")
        rows.append(
            [
                f"{claim.says} ({claim.source})",
                f"{_label(claim.system)} − {_label(claim.other)}",
                signed(found.value, 1),
                f"{signed(found.low, 1)} … {signed(found.high, 1)}",
                "< .001" if found.p < 0.001 else f"{found.p:.3f}".removeprefix("0"),
                signed(analysis.contrast(claim.system, claim.other, test_set, "chrf").value, 1),
                verdict(claim, found, margin) if seeds_vary else "cannot say (one seed)",
            ]
        )
    foot = f"Differences on {analysis.title(test_set)}. "
    if seeds_vary:
        directed = sum(claim.expected != "equal" for claim in claims)
        foot += (
            "Intervals and p include the variation over sentences and over seeds (their standard deviation, pooled "
            "over all systems). Better or worse: p ≤ .05; as good: the whole interval lies within "
            f"±{margin:.1f} BLEU. Of the claims of better and worse ({directed}), {SIGNIFICANT * directed:.2f} would "
            "seem to hold or to fail by chance if no systems differed."
        )
    else:
        foot += "Intervals and p include the variation over sentences only: no system has several seeds yet."
    return f"{_table(head, rows)}\n\n{foot}"


def _power(analysis: Analysis) -> str:
    head = ["test set", "metric", "σ over seeds", "seeds", "standard error", "detectable"]
    rows = []
    for test_set in analysis.test_sets:
        for metric in analysis.metrics:
            spread = analysis.seed_variance(test_set, metric).deviation
            contrasts: dict[tuple[int, int], list[Contrast]] = {}
            for place, baseline in enumerate(analysis.baselines):
                for system in analysis.systems:
                    if system not in analysis.baselines[: place + 1]:
                        seeds = (len(analysis.seeds(system)), len(analysis.seeds(baseline)))
                        contrast = analysis.contrast(system, baseline, test_set, metric)
                        contrasts.setdefault(seeds, []).append(contrast)
            for (some, others), found in sorted(contrasts.items()):
                middle = sorted(found, key=lambda contrast: contrast.error)[len(found) // 2]
                label = analysis.metrics[metric].label
                cells = [
                    analysis.title(test_set),
                    label,
                    _number(spread, lambda number: f"{number:.2f}"),
                    f"{some} and {others}",
                ]
                rows.append([*cells, f"{middle.error:.2f}", _number(None if spread is None else middle.detectable)])
    foot = (
        "Of the differences from a baseline, by the numbers of their seeds: the median standard error, and the true "
        "difference that would have been found (p ≤ .05) with a probability of 80%; unknown without σ."
    )
    return f"{_table(head, rows)}\n\n{foot}"


def _costs(analysis: Analysis) -> str:
    test_set = analysis.test_sets[0]
    head = ["", "folder, MiB", "beam", "sentences a CPU s", "int8", "BLEU", "int8", "difference"]
    rows = []
    for system in analysis.systems:
        speeds, scores = [], []
        for precision in PRECISIONS:
            seconds = analysis.translation_seconds(system, test_set, precision)
            lines = analysis.statistics(system, test_set, "bleu", precision).shape[1]
            speeds.append(" ".join(_number(each and lines / each) for each in seconds))
            scores.append(analysis.score(system, test_set, "bleu", precision).value)
        size = analysis.mean(system, "model", "folder_bytes")
        beams = " ".join(str(run["search"]["beam"]) for run in analysis.results[system])
        cells = [_label(system), _number(size and size / 2**20), beams, *speeds, *map(decimal, scores)]
        rows.append([*cells, signed(scores[1] - scores[0])])
    baseline = _label(analysis.study.baselines[0])
    foot = (
        f"Translation of {analysis.title(test_set)}, run by run, with the beam that each chose: larger beams take "
        "longer. Seconds of a core, with the start of the program, while other programs ran; as if all machines were "
        f"equally fast, which updates of {baseline}, timed after each training, tell."
    )
    return f"{_table(head, rows)}\n\n{foot}"


def _effort(analysis: Analysis) -> str:
    baseline = _label(analysis.study.baselines[0])
    head = ["", "seeds", "updates", "best at", "attempts", "cost of an update", "CPU h spent"]
    rows, total = [], 0.0
    for system in analysis.systems:
        runs = analysis.results[system]
        hours = (
            sum((run["training"]["cpu_seconds_per_update"] or 0) * run["training"]["updates"] for run in runs) / 3600
        )
        total += hours
        rows.append(
            [
                _label(system),
                " ".join(str(run["seed"]) for run in runs),
                " ".join(f"{run['training']['updates']:,}" for run in runs),
                " ".join(f"{run['training']['best_update']:,}" for run in runs),
                " ".join(str(run["training"]["attempts"]) for run in runs),
                " ".join(_number((run["training"].get("cost") or {}).get("relative"), "{:.2f}".format) for run in runs),
                f"{hours:.2f}",
            ]
        )
    seconds = _number(analysis.baseline_seconds, "{:.2f}".format)
    foot = (
        f"Cost: CPU time relative to an update of {baseline}, which takes {seconds} s in the median; {baseline} "
        "against itself shows how exact that is. Spent: as the logs say, with validations, on machines with other "
        f"programs beside the trainings; {total:.1f} hours of a core for all."
    )
    return f"{_table(head, rows)}\n\n{foot}"
