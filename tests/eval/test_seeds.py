"""The test of sentences and seeds: how rarely it marks equal systems, and what posnet-score says of several runs."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from scipy.stats import t

from posnet_eval.metrics.base import MetricOptions
from posnet_eval.statistics import significance
from posnet_eval.statistics.results import SIGNIFICANT
from posnet_eval.statistics.significance import Contrast, Runs, SeedVariance
from support.made_up import WORDS, Mean, text
from support.scoring import report, run, write

LINES, RESAMPLES, AT_ONCE = 100, 300, 1000


def marked(runs, deviation):
    """Shares of 4,000 pairs of systems that the test of seeds marks, and the bootstrap over sentences.

    Scores of lines have a difficulty that all systems share, what each system finds easy, what each run does, and the
    deviation of a run's quality. The standard error of a difference over sentences is about 0.4 for three runs.

    Args:
        runs: of each of two systems.
        deviation: of the quality of runs, in points of the score.
    """
    generator, metric, found = np.random.default_rng([1, runs, int(10 * deviation)]), Mean(MetricOptions()), []
    for _ in range(4000 // AT_ONCE):
        lines = generator.normal(0, 4, (2, AT_ONCE, runs, LINES))
        lines += generator.normal(0, 2, (2, AT_ONCE, 1, LINES)) + generator.normal(40, 20, (1, AT_ONCE, 1, LINES))
        lines += generator.normal(0, deviation, (2, AT_ONCE, runs, 1))
        rows, seed_of_sums = lines.reshape(-1, LINES, 1), int(generator.integers(2**31))
        sums = significance.bootstrap_sums({"": rows}, RESAMPLES, seed_of_sums)[""]
        samples = np.ascontiguousarray(sums.reshape(RESAMPLES, 2, AT_ONCE, runs).transpose(1, 2, 0, 3)) / LINES
        scores = lines.mean(-1)
        for pair in range(AT_ONCE):
            a, b = (Runs(scores[system, pair], samples[system, pair]) for system in (1, 0))
            sentences = significance.compare(metric, a, b, same=False)
            found.append((SeedVariance.of((a, b)).contrast(a, b).p <= SIGNIFICANT, sentences.p <= SIGNIFICANT))
    return np.mean(found, axis=0)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize(("deviation", "least"), [(0.0, 0.08), (0.6, 0.17)])
def test_equal_systems_are_marked_as_rarely_as_claimed(runs, deviation, least):
    """5%, as the chance of 4,000 pairs allows (standard error 0.3%); the bootstrap of sentences does not know seeds."""
    with_seeds, sentences = marked(runs, deviation)
    assert 0.035 <= with_seeds <= 0.065
    assert sentences > least


def made(seeds, samples):
    return Runs(np.array(seeds, dtype=float), np.array(samples, dtype=float))


def test_the_choice_of_sentences_is_counted_once():
    generator = np.random.default_rng(1)
    shared = generator.normal(0, 0.5, (1000, 1))  # what the sentences do to all runs of one system
    own = [generator.normal(0, 0.1, (1000, count)) for count in (3, 1)]
    a, b = made([30, 31, 32.5], 31 + shared + own[0]), made([29.0], 29 + 5 * own[1])
    variance = SeedVariance.of([a, b])
    about = own[0] - own[0].mean(1, keepdims=True)
    assert variance.freedom == 2
    assert variance.deviation == pytest.approx(np.std([30, 31, 32.5], ddof=1))
    assert variance.sentences == pytest.approx(sum(np.var(about, axis=0, ddof=1)) / 2)
    share = 1 / 3 + 1
    sentences = np.var(a.samples.mean(1) - b.samples[:, 0], ddof=1) - share * variance.sentences
    seeds = share * variance.whole
    found = variance.contrast(a, b)
    assert found.value == pytest.approx(31 + 1 / 6 - 29)
    assert found.error == pytest.approx(np.sqrt(sentences + seeds))
    assert found.p == pytest.approx(2 * t(2 * (sentences + seeds) / seeds).sf(found.value / found.error))
    alone = variance.contrast(b)  # the pooled deviation stands for a system with one run
    assert alone.high - 29 == pytest.approx(29 - alone.low)
    assert alone.error > variance.deviation


def test_without_variation_over_seeds_or_at_all():
    samples = np.random.default_rng(1).normal(0, 0.5, (1000, 1))
    a, b = made([31, 31], 31 + np.repeat(samples, 2, axis=1)), made([30, 30], np.full((1000, 2), 30))
    variance = SeedVariance.of([a, b])
    assert (variance.deviation, variance.freedom) == (0, 2)
    found = variance.contrast(a, b)
    assert found == Contrast(1.0, pytest.approx(samples.std(ddof=1)), np.inf)
    assert variance.contrast(b, b).p == 1
    assert SeedVariance.of([made([31], 31 + samples)]).deviation is None
    assert Contrast(5.0, 0.0).p == 1  # as of one line: nothing can be said


def outputs(reference, name, quality, runs=3):
    """Files of the runs of a system, as one option."""
    for seed in range(runs):
        generator = np.random.default_rng([seed, *name.encode()])
        right = quality + generator.normal(0, 0.02)
        lines = [
            " ".join(word if generator.random() < right else generator.choice(WORDS) for word in line.split())
            for line in reference
        ]
        write(Path(f"{name}{seed}.txt"), lines)
    return f"{name}=" + ",".join(f"{name}{seed}.txt" for seed in range(runs))


@pytest.fixture
def three(data):
    """Options of two systems with three runs and one with a single one."""
    reference = text(200)
    write(Path("long.de"), reference)
    systems = [outputs(reference, *of) for of in (("base", 0.6), ("good", 0.75), ("one", 0.62, 1))]
    return "--reference", "long.de", "--metrics", "bleu,ter", "--out", "report", "--system", *systems


def test_several_runs_are_tested_with_their_seeds(three, capsys):
    shown = run(capsys, *three).out
    (test_set,) = report()["test_sets"]
    scores = {system: of["bleu"] for system, of in test_set["scores"].items()}
    lines, *of_good = (Path(name).read_text().splitlines() for name in ("long.de", *(f"good{n}.txt" for n in range(3))))
    assert scores["good"]["runs"] == pytest.approx([sacrebleu.corpus_bleu(output, [lines]).score for output in of_good])
    assert scores["good"]["deviation"] == pytest.approx(np.std(scores["good"]["runs"], ddof=1))
    assert f"σ{scores['good']['deviation']:.1f}" in shown
    squares = [2 * scores[system]["deviation"] ** 2 for system in ("base", "good")]
    for one in test_set["differences"]:
        found = one["metrics"]["bleu"]
        a, b = scores[one["system"]], scores[one["from"]]
        assert found["value"] == pytest.approx(a["value"] - b["value"])
        assert found["high"] - found["value"] == pytest.approx(found["value"] - found["low"])
        assert found["p_shift"] is None
        seeds = sum(squares) / 4 * (1 / len(a["runs"]) + 1 / len(b["runs"]))
        assert found["high"] - found["value"] > 1.96 * np.sqrt(seeds)
        assert (found["low"] > 0 or found["high"] < 0) == (found["p"] <= 0.05)
    assert report()["test"] == "seeds"
    assert test_set["scores"]["good"]["ter"]["marks"] == [["†", "↑"]]  # lower
    assert test_set["scores"]["one"]["bleu"]["marks"] == []
    by_sentences = run(capsys, *three, "--test", "bs")
    (other,) = report()["test_sets"]
    assert report()["test"] == "bs"
    for system, score in scores.items():
        assert score["low"] < other["scores"][system]["bleu"]["low"]
        assert score["low"] < score["value"] < score["high"]
        assert f"{score['value']:.1f} ±{score['half_width']:.1f}" in shown
    assert "over sentences, not training seeds" in by_sentences.out
    assert "sentences and training seeds" not in by_sentences.out


@pytest.mark.parametrize(
    ("systems", "options", "test"),
    [
        (
            ["base=base0.txt", "good=good0.txt"],
            [],
            "two-sided paired bootstrap over sentences, not training seeds, 1,000 resamples, seed 12345; it marks "
            "about 5% of equally good translations",
        ),
        (
            ["base=base0.txt", "good=good0.txt"],
            ["--test", "bs"],
            "paired bootstrap over sentences, not training seeds, 1,000 resamples, seed 12345; it marks about 11% of "
            "equally good translations",
        ),
        (["base=base0.txt,base1.txt", "good=good0.txt"], [], "over sentences and training seeds: paired bootstrap, 1"),
        (
            ["base=base0.txt,base1.txt", "good=good0.txt"],
            ["--test", "ar"],
            "approximate randomization over sentences, not training seeds, 10,000 trials",
        ),
    ],
)
def test_all_reports_say_whether_seeds_are_tested(three, capsys, systems, options, test):
    shown = run(capsys, *three[:-3], *systems, *options, "--latex-intervals").out
    texts = {name: Path("report", f"report.{name}").read_text() for name in ("md", "html", "tex")}
    assert ("|ar:10000|seed:" in texts["md"]) == ("ar" in options)
    score = report()["test_sets"][0]["scores"]["good"]["bleu"]
    assert rf"\,{{\scriptsize[{score['low']:.1f}, {score['high']:.1f}]}}" in texts["tex"]
    interval = "95% interval over sentences" + (" and training seeds" if " and " in test else ", not training seeds")
    for name, said in {"shown": shown, **texts}.items():
        assert test in said.replace("\\", ""), name
        assert interval in said.replace("\\", ""), name
    rows = csv.DictReader(Path("report/report.csv").read_text().splitlines())
    row = next(row for row in rows if row["system"] == "good")
    assert row["p"] == str(report()["test_sets"][0]["differences"][0]["metrics"]["bleu"]["p"])


@pytest.mark.parametrize("options", [[], ["--test", "bs"]])
def test_the_interval_has_the_score_of_runs_that_differ_in_length(three, capsys, options):
    """BLEU of all their lines together is far from the mean of their scores: long outputs have a larger part in it."""
    write(Path("good1.txt"), [line + " falsch" * 8 for line in Path("good0.txt").read_text().splitlines()])
    run(capsys, *three[:-3], "good=good0.txt,good1.txt", *options)
    score = report()["test_sets"][0]["scores"]["good"]["bleu"]
    assert score["low"] < score["value"] < score["high"]
    assert score["value"] == pytest.approx(np.mean(score["runs"]))


def test_runs_with_equal_outputs_are_remarked(three, capsys):
    write(Path("copy.txt"), Path("one0.txt").read_text().splitlines())
    said = run(capsys, *three, "copies=one0.txt,copy.txt").out
    assert "copies on long: runs with equal outputs, which say nothing about the variation over seeds" in said
    assert "good on long: runs" not in said


def test_a_system_that_varies_more_than_the_others_is_remarked(three, capsys):
    """Of the metrics by which it does; its deviation is pooled with theirs."""
    shutil.copy("base0.txt", "wild0.txt")
    write(Path("wild1.txt"), [line[: len(line) // 2] for line in Path("base0.txt").read_text().splitlines()])
    said = run(capsys, *three, "wild=wild0.txt,wild1.txt").out
    assert "note: wild on long: σ of BLEU, TER is more than 3 times that of the other systems, with which" in said
    assert said.count("more than 3 times that of the other") == 1
    for options in (["--test", "bs"], ["--metrics", "chrf", "--test", "shift"]):
        assert "3 times that of the other" not in run(capsys, *three, "wild=wild0.txt,wild1.txt", *options).out
    assert "3 times that of the other" not in run(capsys, *three).out


@pytest.mark.parametrize(("size", "noted"), [(1, "only 1 line"), (29, "only 29 lines"), (30, "")])
def test_few_lines_are_remarked(three, capsys, size, noted):
    for name in ("long.de", "base0.txt"):
        write(Path(name), Path(name).read_text().splitlines()[:size])
    said = run(capsys, "--reference", "long.de", "--system", "base0.txt").out
    assert ("intervals and p-values mean little below 30" in said) == bool(noted)
    assert f"note: long: {noted}" in said or not noted
