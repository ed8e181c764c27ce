"""What is made of the results of a study: pooled scores, differences, verdicts, tables and pictures."""

import json
import math
import re

import numpy as np
import pytest
import sacrebleu
from PIL import Image
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from posnet_eval.metrics.base import Segment
from posnet_eval.statistics.significance import Contrast
from posnet_fairseq.cli.plot import main
from posnet_fairseq.studies import analysis, protocol, results, tables
from posnet_fairseq.studies.analysis import Analysis
from posnet_fairseq.studies.protocol import Claim
from support.commands import ROOT, fails
from support.study import joined, result

PROTOCOL = """
settings: {}
beams: [5]
baselines: [base, other]
test_sets: {test: whole sentences, more: short ones}
joined: [2, 10]
systems:
  base: {mixer: shaw, options: "", seeds: [1, 2, 3]}
  other: {mixer: shaw, options: "", seeds: [1]}
  good: {mixer: rposnet, options: "", seeds: [1, 2]}
  absent: {mixer: rope, options: "", seeds: [1]}
margin: 1.0
claims:
  - {says: Good is better than the base, source: "A, Section 1", system: good, expected: better, other: base}
  - {says: Good is as good as the other, source: "A, Section 2", system: good, expected: equal, other: other}
  - {says: What was not run, source: "A, Section 3", system: absent, expected: worse, other: base}
"""
QUALITY = {"base": 0.6, "other": 0.61, "good": 0.7}
SIZES = {"test": 300, "more": 80}
JOINED = {2: (41.5, 1.0), 10: (20.2, 1.25)}  # BLEU and length with sentences joined to a line


@pytest.fixture
def found(monkeypatch, tmp_path):
    """The analysis of a study of which one system has no results."""
    (tmp_path / "made.yaml").write_text(PROTOCOL)
    monkeypatch.setattr(protocol, "PROTOCOLS", tmp_path)
    study = protocol.read_study("made")
    for system, its in study.systems.items():
        for seed in its.seeds if system in QUALITY else ():
            about = result("made", system, seed, QUALITY[system] + seed / 200, SIZES, rate=0.4 + seed / 10)
            if system == "good" and seed == 2:  # others were made before this was measured
                about["joined"] = {str(count): joined(300 // count, *both) for count, both in JOINED.items()}
            results.write_result(results.path_of(tmp_path / "results", system, seed), about)
    return Analysis(study, results.read_all(tmp_path / "results", study))


def test_courses_are_geometric_means_over_seeds(found):
    for run, perplexity in zip(found.results["good"], (10.0, 1000.0), strict=True):
        run.training.validation.perplexity = [perplexity] * len(run.training.validation.updates)
    assert found.course("good")[1] == pytest.approx(100.0)


def bleu(statistics):
    """BLEU of (N, 10) statistics, written out."""
    sums = statistics.sum(0)
    logarithms = [math.log(sums[2 + n] / sums[6 + n]) for n in range(4)]
    return 100 * min(1.0, math.exp(1 - sums[1] / sums[0])) * math.exp(sum(logarithms) / 4)


def of_sentences(found, name):
    """BLEU of each run by a bootstrap of sentences, resample by resample."""
    rows = found.statistics(name, "test", "bleu")
    generator = np.random.default_rng(analysis.SEED)
    drawn = [generator.choice(300, 300) for _ in range(analysis.RESAMPLES)]
    return np.array([[bleu(run[lines]) for run in rows] for lines in drawn])


def test_without_several_seeds_nothing_is_decided(found):
    one = Analysis(found.study, {system: runs[:1] for system, runs in found.results.items()})
    contrast = one.contrast("good", "other", "test", "bleu")
    sentences = (of_sentences(one, "good") - of_sentences(one, "other")).std(ddof=1)
    assert (contrast.error, contrast.freedom) == (pytest.approx(sentences), math.inf)
    text = tables.markdown(one)
    claims = [line for line in text.splitlines() if line.startswith("| Good is ")]
    assert [line.split(" | ")[-1] for line in claims] == ["cannot say (one seed) |"] * 2
    (error,) = {
        line.split(" | ")[4] for line in text.splitlines() if line.startswith("| whole sentences (test) | BLEU |")
    }
    assert float(error) > 0
    assert "| whole sentences (test) | BLEU | – | 1 and 1 | " in text
    assert all(line.endswith(" | – |") for line in text.splitlines() if "| 1 and 1 |" in line)


def test_the_course_of_one_run_is_its_own(found):
    (run,) = found.results["other"]
    for value in (9.7, 14.74, 17.69):  # exp(log(x)) is another number
        run.training.validation.perplexity = [value] * len(run.training.validation.updates)
        assert found.course("other")[1].tolist() == run.training.validation.perplexity


def test_the_last_point_of_the_shortest_course_is_in_the_table(found):
    """Whatever its seconds are rounded to, and where the seeds of a system end at different updates."""
    for run in found.results["good"]:
        run.training.cost.relative = 0.30043 / 0.5
    longer = found.results["good"][1].training
    longer.validation.updates.append(1250)
    longer.validation.perplexity.append(1.0)
    longer.updates = 1250
    assert found.least_cpu_seconds == pytest.approx(1000 * 0.30043)
    assert found.perplexity_after("good", found.least_cpu_seconds) == found.perplexity_at("good", 1000)
    assert found.perplexity_after("good", 1.01 * found.least_cpu_seconds) is None


def test_a_slow_machine_of_another_system_changes_no_cpu_seconds(found):
    """They are as on the machines of the first baseline; if it has no runs, as on those of the others."""
    before = [found.cpu_seconds(system) for system in QUALITY]
    for run in found.results["good"]:
        run.training.cost.other_seconds = 1.0
    again = Analysis(found.study, found.results)
    assert [again.cpu_seconds(system) for system in QUALITY] == before
    alone = Analysis(found.study, {"good": found.results["good"]})
    assert alone.cpu_seconds("good") == pytest.approx(2 * found.cpu_seconds("good"))


def test_a_system_of_unknown_cost_has_gaps(found, tmp_path):
    """As after a training on several processes."""
    found.results["good"][0].training.cost = None
    assert found.cpu_seconds("good") is None
    assert found.perplexity_after("good", 100) is None
    assert found.least_cpu_seconds == pytest.approx(1000 * 0.5)
    row = next(line for line in tables.markdown(found).splitlines() if line.startswith("| `good`"))
    assert row.split(" | ")[4] == "–"


def test_front_has_no_point_that_costs_more_and_scores_less():
    points = {"a": (1.0, 10.0), "b": (2.0, 9.0), "c": (2.0, 12.0), "d": (3.0, 12.0), "e": (4.0, 13.0), "f": (0.5, 1.0)}
    assert analysis.front(points) == ["f", "a", "c", "e"]


@pytest.mark.parametrize(
    ("expected", "value", "error", "answer"),
    [
        ("better", 2.0, 0.5, "yes"),
        ("better", -2.0, 0.5, "no"),
        ("better", 0.5, 0.5, "cannot say"),
        ("worse", -2.0, 0.5, "yes"),
        ("worse", 2.0, 0.5, "no"),
        ("equal", 0.1, 0.3, "yes"),
        ("equal", 0.1, 0.6, "cannot say"),
        ("equal", 3.0, 0.6, "no (better)"),
        ("equal", -3.0, 0.6, "no (worse)"),
        ("equal", 0.7, 0.1, "yes"),  # a difference that is certain, and too small to matter
    ],
)
def test_verdicts(expected, value, error, answer):
    assert tables.verdict(Claim("", "", "a", expected, "b"), Contrast(value, error), 1.0) == answer


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ([], 0),
        ([0.05], 1),
        ([0.03, 0.03], 0),
        ([0.04, 0.02], 2),
        ([0.01, 0.02, 0.04, 0.9], 1),  # .0125, then .0167: the rest is not looked at
        ([0.5, 0.03, 0.001], 1),
    ],
)
def test_holm(values, number):
    assert tables.holm(values) == number


def test_significant_differences_are_counted(found):
    pairs = {("base", metric): ("other", "good") for metric in ("bleu", "chrf")}
    pairs |= {("other", metric): ("good",) for metric in ("bleu", "chrf")}
    p = {
        (baseline, metric): [
            found.contrast(system, baseline, each, metric).p for system in systems for each in ("test", "more")
        ]
        for (baseline, metric), systems in pairs.items()
    }
    counts = {key: (len(of), sum(each <= 0.05 for each in of)) for key, of in p.items()}
    assert {many for _, many in counts.values()} > {2}  # of good, but not all of other
    text = tables.markdown(found)
    for (baseline, metric), (tests, many) in counts.items():
        label = {"bleu": "BLEU", "chrf": "chrF"}[metric]
        assert f"| `{baseline}` | {label} | {tests} | {many} | {tests / 20:.1f} | " in text
    assert f"| all |  | 12 | {sum(many for _, many in counts.values())} | 0.6 | " in text


def test_tables_and_pictures(found, tmp_path, capsys):
    out = tmp_path / "figures"
    main(["study", "made", "--results", str(tmp_path / "results"), "--out", str(out)])
    assert {path.name for path in out.iterdir()} == {"made.md"} | {
        f"made.{what}.{kind}" for what in ("courses", "costs", "lengths", "joined") for kind in ("png", "svg")
    }
    assert capsys.readouterr().err.count("study: ") == 9
    for path in out.glob("*.png"):
        with Image.open(path) as image:
            colors = [color for _, color in image.convert("RGB").getcolors(2**24) if len(set(color)) > 1]
            assert len(colors) > 100, path  # of curves and their edges: axes and text are grey
    text = (out / "made.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `good` |")]
    score = found.score("good", "test", "bleu")
    assert f"{score.value:.1f} ±{score.half_width:.1f} σ{score.deviation:.1f} †↑‡↑" in rows[0]
    assert "| Good is better than the base (A, Section 1) | `good` − `base` |" in text
    assert list(found.joined["good"]) == [1, *JOINED]
    lengths = 1.0, *(length for _, length in JOINED.values())
    assert [each.length for each in found.joined["good"].values()] == pytest.approx(lengths)
    shown = [(each.bleu, f"({each.length:.2f})") for each in found.joined["good"].values()]
    long = [f"{bleu.value:.1f} ±{bleu.half_width:.1f} {length}" for bleu, length in shown]
    assert f"| `good` | {' | '.join(long)} |" in rows
    assert found.joined.keys() == {"good"}
    (run,) = (run for run in found.results["good"] if run.joined)
    assert found.joined["good"][1].bleu.value == pytest.approx(run.test_sets["test"].float32.bleu.score)
    assert found.joined["good"][10].bleu.value == pytest.approx(JOINED[10][0])
    assert "What was not run" not in text
    assert "absent" not in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        assert len({line.count("|") for line in table.splitlines()}) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mad"], "mad: choose one of made. Did you mean made?"),
        (["made", "--results", "nowhere"], "nowhere has no results of this study. posnet-run study makes them."),
    ],
)
def test_bad_arguments_are_one_sentence(found, tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in fails(capsys, main, "study", *words)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("study", ["multi30k", "multi30k-joined", "convergence"])
def test_committed_results_are_redrawn(tmp_path, study):
    """The tables in docs/results are those of the results that are committed.

    Scores with intervals and marks, differences, lengths, courses, costs and published systems: what changes one number
    is found here.
    """
    main(["study", study, "--results", str(ROOT / "results" / study), "--out", str(tmp_path)])
    assert (tmp_path / f"{study}.md").read_text() == (ROOT / "docs/results" / f"{study}.md").read_text()


def shorten(run, *metrics):
    """Leave out the last line of statistics of a test set, by all metrics if none is named."""
    segments = run["test_sets"]["test"]["segments"]
    for metric in metrics or segments:
        segments[metric] = results.packed(results.unpacked(segments[metric])[:-1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda run: run.update(seed=1),
            "good_s2.json has the result of good_s1. Remove it, or rename it to good_s1.json",
        ),
        (lambda run: run.update(study="old"), "good_s2.json is of the study old, not made. Give another folder"),
        (lambda run: run["settings"].update(lr="1"), "good_s2.json and base_s1.json were made with different settings"),
        (lambda run: run["settings"].update(options="1"), "good_s2.json and good_s1.json were made with different"),
        (lambda run: run["data"].update(key="1"), "good_s2.json and base_s1.json were made with different data"),
        (
            lambda run: run.pop("data"),
            "good_s2.json is no result of a run of a study: Object missing required field `data`",
        ),
        (lambda run: run["training"]["validation"]["perplexity"].pop(), ": 3 perplexities are of 4 updates - at `"),
        (
            lambda run: run["test_sets"]["test"]["segments"].update(chrf="/Td6WFoAAATm1rRG"),
            ": the numbers of a score are damaged - at `",
        ),
        (lambda run: shorten(run, "chrf"), ": the metrics have statistics of different numbers of lines - at `"),
        (shorten, "good_s2.json and base_s1.json were made with different numbers of lines. Keep them in different"),
        # As before statistics of segments stood together.
        (
            lambda run: run["test_sets"]["test"].pop("segments"),
            "is no result of a run of a study: Object missing required field `segments`",
        ),
    ],
)
def test_what_does_not_belong_together_is_not_pooled(found, tmp_path, capsys, change, sentence):
    """A copy under another name would make the seeds seem to agree."""
    path = tmp_path / "results" / "good_s2.json"
    run = json.loads(path.read_text())
    change(run)
    results.write_result(path, run)
    assert sentence in fails(capsys, main, "study", "made", "--results", str(path.parent), "--out", str(tmp_path / "f"))
    assert not (tmp_path / "f").exists()


def test_a_system_that_the_study_does_not_have_is_refused(found, tmp_path, capsys):
    results.write_result(tmp_path / "results/new_s1.json", result("made", "new", 1, 0.5, SIZES))
    assert "new_s1.json is of a version of made with other systems, test sets or metrics" in fails(
        capsys, main, "study", "made", "--results", str(tmp_path / "results")
    )


def test_literature_scores_words_of_its_tokenizer():
    lines = ["Zwei Männer - einer sitzt: „gut“.", "Ein T-Shirt’s", "A & b"]
    references = ['Zwei Männer – einer steht: "gut".', "ein T-Shirt", "A & B"]
    metric = protocol.read_study("multi30k").metrics("de")["bleu_literature"]
    tokenizer = MosesTokenizer("de")
    split = [
        [tokenizer.tokenize(MosesPunctNormalizer("de").normalize(f"{line.lower()}\n"), return_str=True) for line in of]
        for of in (lines, references)
    ]
    wanted = sacrebleu.corpus_bleu(split[0], [split[1]], tokenize="none", force=True).score
    segments = [Segment("", line, (of,)) for line, of in zip(lines, references, strict=True)]
    found = metric.corpus(sum(numbers.sum(0) for _, numbers in metric.statistics(segments)))
    assert found == pytest.approx(wanted)
    cased = sacrebleu.corpus_bleu(lines, [references]).score
    assert found != pytest.approx(cased, abs=1)
    assert metric.details() | {"version": ""} == {
        **{"nrefs": "1", "case": "lc", "eff": "no", "tok": "moses (sacremoses)", "smooth": "exp", "version": ""}
    }
