import dataclasses
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from posnet_eval.inputs.hygiene import Remark
from posnet_eval.report import plots
from posnet_eval.report.page import _order, render
from posnet_eval.statistics.results import Bucket
from support import made_up

HOSTILE = "</script><script>alert(1)</script> <!-- <b>\"bold\" & 'it' 快乐的猫 שלום ‮😀\u2028"
CHROMIUM = shutil.which("chromium")
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A page taken apart; fails where tags are not balanced.

    Attributes:
        tables: rows of the texts of their cells.
        attributes: (tag, name, value) of all elements.
        text: all outside of scripts and styles.
        data: of the scripts that hold data.
    """

    def __init__(self, html):
        super().__init__()
        self.open, self.tables, self.attributes, self.data = [], [], [], []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data.append(json.loads(text, parse_constant=pytest.fail))
        if tag not in ("script", "style"):
            self.text += text
            if any(name in ("td", "th") for name, _ in self.open):
                self.tables[-1][-1][-1] += text


def changed(comparison, **changes):
    """The same comparison with another first test set, the only one."""
    return dataclasses.replace(comparison, test_sets=(dataclasses.replace(comparison.test_sets[0], **changes),))


def with_texts(comparison, system, index, text):
    """The same comparison where a system said something else."""
    outputs = comparison.test_sets[0].outputs
    runs = [list(run) for run in outputs[system]]
    runs[0][index] = text
    return changed(comparison, outputs=outputs | {system: tuple(map(tuple, runs))})


def test_all_scores_are_there():
    comparison = made_up.comparison(systems=4, metrics=5, test_sets=2, baselines=2)
    page = Page(render(comparison))
    tables = [table for table in page.tables if "COMET" in "".join(table[0])]
    assert len(tables) == 2
    for test_set, (header, *rows) in zip(comparison.test_sets, tables, strict=True):
        assert test_set.name in page.text
        for metric, cell in zip(test_set.metrics, header[1:], strict=True):
            assert cell.startswith(metric.label)
            assert ("lower is better" in cell) == (metric.name == "ter")
            assert metric.signature in page.text
        for system, (label, *cells) in zip(comparison.systems, rows, strict=True):
            assert label.startswith(comparison.labels[system])
            for metric, cell in zip(test_set.metrics, cells, strict=True):
                score = test_set.scores[system][metric.name]
                marks = "".join(
                    f" {symbol}{arrow}" for symbol, arrow in comparison.marks(test_set, system, metric.name)
                )
                assert " ".join(cell.split()) == f"{score.value:.1f}{marks} 95% ±{score.half_width:.1f}"
    assert {"†↑", "†↓", "‡↑", "‡↓"} & set(page.text.split())
    for said in ("12345", "sacrebleu 2.6.0", "posnet 1.2.3", "bootstrap over sentences, not training seeds, 200"):
        assert said in page.text
    assert [
        label for label in ("System s0baseline †", "System s1baseline ‡", "System s2") if label not in page.text
    ] == []


def test_differences_in_numbers():
    comparison = made_up.comparison(systems=2, metrics=1, segments=100)
    difference = comparison.test_sets[0].differences["s1", "s0"]["bleu"]
    cells = next(table for table in Page(render(comparison)).tables if "p of the shift" in "".join(table[0]))[1]
    assert cells[:3] == ["System s1", "System s0", "BLEU"]
    assert difference.value < 0
    assert cells[3] == f"−{-difference.value:.2f}"
    assert cells[4] == f"−{-difference.low:.2f} to −{-difference.high:.2f}"
    assert cells[5:] == [f"{difference.p:.4f}", f"{difference.p_shift:.4f}", "0.0%"]


def test_runs():
    comparison = made_up.comparison(runs=3)
    score = comparison.test_sets[0].scores["s1"]["bleu"]
    page = Page(render(comparison))
    assert f"{score.value:.1f} ± {score.deviation:.1f} sd" in page.tables[0][2][1]
    assert f"95% ±{score.half_width:.1f}" in page.tables[0][2][1]
    assert "3 runs" in page.tables[0][2][0]
    assert "sd" not in Page(render(made_up.comparison())).text


def test_the_same_outputs():
    page = Page(render(made_up.comparison(same=("s1",))))
    assert "†=" in page.tables[0][2][1]
    assert "the same outputs" in page.tables[1][1][5]
    data = page.data[0]
    assert data["pairs"]["0:1"] == [[[], []]] * 3
    assert data["pairs"]["0:2"][0][0]


def test_a_missing_system_has_a_row_with_its_reason():
    page = Page(render(made_up.comparison(missing=("s1",))))
    label, *cells = page.tables[0][2]
    assert label.startswith("System s1")
    assert "not scored: s1.txt is not there" in label
    assert cells == ["–"] * 3
    assert page.data[0]["systems"] == ["System s0", "System s2"]
    # a baseline that is missing, and a test set where nothing was scored
    assert Page(render(made_up.comparison(missing=("s0",)))).tables[0][1][1:] == ["–"] * 3
    assert Page(render(made_up.comparison(missing=("s0", "s1", "s2")))).data == []


FACTS = {
    "<b>plain": {"s0": 2815, "s1": 12862, "s2": 9.5},
    "one unit": {"s0": "0.9 GB", "s1": "1,000.5 GB", "s2": "none", "s3": "-3 GB"},
    "several": {"s0": "980K", "s1": "3.10M", "s3": "12M"},
}


def test_columns_before_the_scores():
    comparison = dataclasses.replace(made_up.comparison(systems=4, missing=("s3",)), columns=FACTS)
    html = render(comparison)
    header, *rows = Page(html).tables[0]
    assert [cell.split("higher")[0] for cell in header[:5]] == ["System", *FACTS, "BLEU"]
    shown = [
        ["2,815", "0.9 GB", "980K"],
        ["12,862", "1,000.5 GB", "3.10M"],
        ["9.5", "none", "–"],
        ["–", "-3 GB", "12M"],
    ]
    assert [row[1:4] for row in rows] == shown
    assert all(len(row) == len(header) == 7 for row in rows)
    assert "th.fact" in html
    assert "fact" not in render(dataclasses.replace(comparison, columns={}))
    orders = [_order(column) for column in FACTS.values()]  # numbers of one unit, else texts in their order
    assert orders[1:] == [{"s0": 0.9, "s1": 1000.5, "s3": -3}, {"s0": 2, "s1": 1, "s3": 0}]


@pytest.mark.parametrize(
    "options", [{"segments": 1}, {"systems": 1}, {"sources": False}, {"baselines": 0}, {"systems": 8, "baselines": 2}]
)
def test_unusual_comparisons(options):
    comparison = made_up.comparison(**options)
    page = Page(render(comparison))
    assert len(page.tables[0]) == 1 + len(comparison.systems)
    assert "nan" not in page.text.lower()
    assert page.data[0]["segments"]
    assert page.text.count(" others") == (options.get("systems") == 8)


def test_remarks():
    remarks = (Remark("s1", "2 empty lines", (3, 17)), Remark("", "1 very long line", (5,)))
    text = " ".join(Page(render(changed(made_up.comparison(), remarks=remarks))).text.split())
    for said in ("Source and reference 1 very long line: line 5", "System s1 2 empty lines: lines 3, 17"):
        assert said in text


def test_hostile_text_is_text():
    comparison = with_texts(made_up.comparison(systems=2, segments=5), "s1", 0, HOSTILE)
    group = Bucket(HOSTILE, 5, comparison.test_sets[0].by_length[0].scores)
    remarks = (Remark("s1", HOSTILE, (1,)),)
    comparison = changed(
        comparison, name=HOSTILE, remarks=remarks, by_group=(group, dataclasses.replace(group, label="$y$"))
    )
    labels, versions = {"s0": HOSTILE, "s1": "$x$ \x1b 位置"}, comparison.versions | {HOSTILE: HOSTILE}
    html = render(dataclasses.replace(comparison, labels=labels, versions=versions))
    page = Page(html)
    assert HOSTILE in page.data[0]["texts"]
    assert HOSTILE in page.data[0]["systems"]
    assert html.count("<script>") == 1
    assert html.count("</script>") == 2
    # as a remark, as a version, in every place of labels and names
    assert page.text.count(HOSTILE) > 10
    # in the plots, where a dollar could start a formula and XML has no control characters
    assert page.text.count("$x$ \ufffd 位置") == 3
    assert page.text.count("$y$") == 3 + 1
    assert ("h2", "id", "test-set-1-title") in page.attributes


def test_needs_no_network():
    html = render(made_up.comparison(test_sets=2))
    page = Page(html)
    loaded = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "srcset", "action")]
    assert loaded
    assert all(value.startswith(("#", "data:")) for value in loaded)
    assert set(re.findall(r"url\(['\"]?(.)", html)) <= {"#"}
    assert "@import" not in html
    assert "://" not in html


def test_plots_do_not_disturb_each_other_nor_the_page():
    comparison = made_up.comparison(test_sets=2, metrics=2, systems=8)
    groups = comparison.test_sets[0].by_length[:1]
    sets = [dataclasses.replace(test_set, by_group=groups) for test_set in comparison.test_sets]
    html = render(dataclasses.replace(comparison, test_sets=tuple(sets)))
    page = Page(html)
    assert html.count("<svg") == 2 * (2 + 2 * (2 + 6 + 1))
    assert html.count("<style") == 1
    names = [value for _, name, value in page.attributes if name == "id"]
    assert len(names) == len(set(names))
    used = {value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")}
    used |= {value[5:-1] for _, name, value in page.attributes if name == "clip-path"}
    assert used <= set(names)


def test_a_line_of_100000_characters_is_shortened():
    html = render(with_texts(made_up.comparison(segments=5), "s1", 0, "abc " * 25_000))
    assert "abc … (100,000 characters)" in html
    assert len(html) < 100_000


def dom(path, html):
    """The page after its scripts have run."""
    path.write_text(html, encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent}/profile"]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120)
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_in_a_browser(tmp_path):
    """A reader sorts by BLEU, the worst first, and looks where the first system is better than the third by TER."""
    comparison = made_up.comparison(segments=1, systems=4, missing=("s1",))
    comparison = with_texts(with_texts(comparison, "s0", 0, f"😀 good {HOSTILE}"), "s3", 0, f"😀 bad {HOSTILE}")
    scores = {
        "bleu": {"s0": np.array([70.2]), "s2": np.array([50.0]), "s3": np.array([60.0])},
        "chrf": {"s0": np.array([11.0]), "s2": np.array([12.0]), "s3": np.array([13.0])},
        "ter": {"s0": np.array([20.0]), "s2": np.array([50.0]), "s3": np.array([60.5])},
    }
    test_set = comparison.test_sets[0]
    comparison = changed(comparison, segments=scores)
    acts = """<script>
        const header = document.querySelectorAll("thead th")[1];
        header.firstElementChild.click();
        header.firstElementChild.click();
        const { a, b, metric, kind } = document.querySelector("form").elements;
        a.value = 2; b.value = 0; metric.value = 2; kind.selectedIndex = 1;
        document.querySelector("form").dispatchEvent(new Event("change"));
    </script></body>"""
    html = render(comparison)
    untouched = dom(tmp_path / "page.html", html)
    assert "<h4>Line 1: BLEU differs by 20.2</h4>" in untouched
    touched = dom(tmp_path / "page.html", html.replace("</body>", acts))
    page = Page(touched)
    bleu = {system: of["bleu"].value for system, of in test_set.scores.items()}
    order = [*sorted(bleu, key=bleu.get), "s1"]
    assert [row[0][:9] for row in page.tables[0][1:]] == [f"System {system}" for system in order]
    assert ("th", "aria-sort", "ascending") in page.attributes
    segments = Page(touched[touched.index('<div class="segments"') : touched.index('<script type="application/json"')])
    assert "Line 1: TER differs by 40.5" in segments.text
    assert test_set.sources[0] in segments.text
    assert f"😀 good {HOSTILE}" in segments.text
    assert "TER 60.5" in segments.text
    assert re.findall(r'<mark class="(.)">(.*?)</mark>', touched) == [("a", "bad"), ("b", "good")]
    assert "where System s0 is better" in page.text


def test_a_system_has_one_color_in_all_charts():
    test_sets = [
        made_up.made_up_test_set(name, systems, segments=20, runs=1, metrics=made_up.METRICS[:1])
        for name, systems in (("first", "abc"), ("second", "bc"))
    ]
    comparison = made_up.compared("abc", test_sets)
    styles = plots.line_styles(comparison)
    assert list(styles) == ["a", "b", "c"]
    assert len({each["color"] for each in styles.values()}) == 3
    for test_set in test_sets:
        chart = plots.intervals(comparison, test_set, test_set.metrics[0], styles)
        for system, each in styles.items():
            assert (each["color"].lower() in chart.lower()) == (system in test_set.scores)
