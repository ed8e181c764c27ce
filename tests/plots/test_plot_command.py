"""posnet-plot as a command, with what a careless user does to it."""

import base64
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from PIL import Image

import posnet_fairseq as posnet
from posnet_eval.report.publish import as_json
from posnet_fairseq.cli.plot import main
from posnet_fairseq.inference.inspection import Mixing
from posnet_fairseq.plots import curves, matrices, of_model, score_pictures, style
from posnet_fairseq.runs.systems import find_list, read_systems
from support import made_up
from support.checkpoints import checkpoint, language_model_checkpoint
from support.commands import fails
from support.training_log import training_log

SMALL = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}


def plot(capsys, *arguments):
    """What is said on standard error."""
    main([str(argument) for argument in arguments])
    return capsys.readouterr().err


def pictures(folder):
    """The names of pictures, each of which is there as PNG and as SVG and is not empty."""
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            assert len(image.convert("L").getcolors(256 * 256)) > 10, path
        assert b"</svg>" in path.with_suffix(".svg").read_bytes()[-20:]
    assert not list(folder.glob(".*")), "a temporary file was left"
    return {path.stem for path in folder.glob("*.png")}


def content(path):
    """The data in a page."""
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.S)
    return json.loads(data)


def unpacked(head, shape):
    steps = np.frombuffer(base64.b64decode(head["steps"]), "<u2").astype(float)
    values = head["low"] + steps * (head["high"] - head["low"]) / of_model.LEVELS
    values[steps > of_model.LEVELS] = np.nan
    return torch.tensor(values.reshape(shape))


@pytest.fixture
def drawn(monkeypatch):
    """The names of pictures, which are made and not written: test_weights_of_a_sentence writes them."""
    names = set()

    def save(figure, path):
        names.add(path.name)
        pyplot.close(figure)

    monkeypatch.setattr(style, "save", save)
    return names


def test_weights_of_a_sentence(capsys, tmp_path):
    model = checkpoint(tmp_path / "model" / "model.pt", "shaw", **SMALL)
    said = plot(capsys, "weights", model, "--sentence", "w3 w4 </script> w5", "--pretokenized", "--out", tmp_path / "f")
    kinds = {"weights.{}.1", "energies.{}.1", "profile.{}", "profile-energy.{}"}
    expected = {kind.format(place) for kind in kinds for place in ("encoder", "decoder", "cross")}
    assert pictures(tmp_path / "f") == expected | {"profile-added.encoder", "profile-added.decoder"}
    assert "weights.html shows every head" in said
    encoder, decoder, cross = content(tmp_path / "f" / "weights.html")
    assert [encoder["mixer"], decoder["mixer"], cross["mixer"]] == ["shaw", "shaw", "attention"]
    assert encoder["keys"] == ["w3", "w4", "<unk>", "w5", "</s>"]
    assert decoder["queries"][0] == "</s>"
    for head in encoder["shown"]["mixing weights α"]:
        torch.testing.assert_close(
            unpacked(head, (5, 5)).sum(dim=1), torch.ones(5, dtype=torch.double), atol=1e-3, rtol=0
        )
    assert (
        unpacked(decoder["shown"]["energies before the softmax"][0], [len(decoder["queries"])] * 2)[0].isnan()[1:].all()
    )


def test_static_weights_need_no_sentence_and_no_data(capsys, tmp_path, drawn):
    model = checkpoint(tmp_path / "model" / "model.pt", "rposnet", **SMALL)
    for path in model.parent.glob("dict.*"):
        path.unlink()
    plot(capsys, "weights", model, "--out", tmp_path / "new" / "figures")
    names = {"weights.{}.1", "energies.{}.1", "profile.{}", "profile-energy.{}"}
    assert drawn == {name.format(p) for name in names for p in ("encoder", "decoder")}
    encoder, _ = content(tmp_path / "new" / "figures" / "weights.html")
    assert encoder["queries"] == [str(position) for position in range(24)]
    assert set(encoder["shown"]) == {"mixing weights α", "energies before the softmax"}, "gates need tokens"


def test_weights_as_numbers(capsys, tmp_path, drawn):
    """The file has the weights that Python returns, with token names, for all layers that have weights."""
    mixers = {"encoder_self_mixer": "fouriernet,mamba2,shaw", "decoder_self_mixer": "ssru,rposnet,attention"}
    model = checkpoint(tmp_path / "model" / "model.pt", **mixers, encoder_layers=3, decoder_layers=3)
    sentence = "--sentence", "w3 </script> w5", "--pretokenized"
    said = plot(capsys, "weights", model, *sentence, "--npz", tmp_path / "a")
    assert "without weights, and left out: encoder.1 (fouriernet), encoder.2 (mamba2), decoder.1 (ssru)" in said
    assert not drawn
    loaded = posnet.load(model, pretokenized=True)
    with np.load(tmp_path / "a") as found:  # which refuses pickles
        tokens = {name: found[name].tolist() for name in found if name.endswith(("queries", "keys"))}
        expected = loaded.weights("w3 </script> w5", " ".join(tokens["cross.queries"][:-1]))
        assert set(found) - set(tokens) == {name for name, each in expected.items() if each.weights is not None}
        for name, each in expected.items():
            place = name.partition(".")[0]
            assert tokens[f"{place}.queries"] == each.queries
            assert tokens[f"{place}.keys"] == each.keys
            if each.weights is not None:
                assert found[name].shape == (4, len(each.queries), len(each.keys))
                assert found[name] == pytest.approx(each.weights.numpy(), abs=1e-6)
    assert tokens["encoder.keys"] == ["w3", "<unk>", "w5", "</s>"]
    with pytest.raises(SystemExit):
        main(["weights", str(model), "--npz", "a", "--out", "b"])
    assert "argument --out: not allowed with argument --npz" in capsys.readouterr().err
    assert fails(capsys, main, "weights", model, *sentence, "--npz", model).count("which would be lost") == 1


def test_gates_of_a_sentence(capsys, tmp_path, drawn):
    model = checkpoint(tmp_path / "model" / "model.pt", "rposnet", **SMALL)
    plot(capsys, "gates", model, "--sentence", "w3 w4", "--pretokenized", "--out", tmp_path / "f")
    assert drawn == {
        "gates.encoder.1",
        "gates.decoder.1",
        "profile-gates.encoder",
        "profile-gates.decoder",
    }
    shown = content(tmp_path / "f" / "gates.html")[0]["shown"]
    alpha, beta, both = (
        unpacked(shown[name][1], (3, 3)) for name in ("mixing weights α", "latent weights β of the gate", "α·β")
    )
    torch.testing.assert_close(alpha * beta, both, atol=1e-4, rtol=0)


def test_language_models(capsys, tmp_path, drawn):
    model = language_model_checkpoint(tmp_path / "model" / "model.pt", "shaw")
    plot(capsys, "weights", model, "--sentence", "w3 w4", "--pretokenized", "--out", tmp_path / "f")
    names = {"weights.decoder.1", "weights.decoder.2", "energies.decoder.1", "energies.decoder.2"}
    assert drawn == names | {"profile.decoder", "profile-energy.decoder", "profile-added.decoder"}
    first, _ = content(tmp_path / "f" / "weights.html")
    assert first["keys"] == ["</s>", "w3", "w4"]
    (model.parent / "dict.txt").unlink()
    assert "has no dict.txt. Give the directory" in fails(
        capsys, main, "weights", model, "--sentence", "w3", "--pretokenized"
    )


def test_what_has_no_weights_is_left_out(capsys, tmp_path, drawn):
    model = checkpoint(tmp_path / "model" / "model.pt", "fouriernet", **SMALL)
    said = plot(capsys, "weights", model, "--sentence", "w3", "--pretokenized", "--out", tmp_path / "f")
    assert "without weights, and left out: encoder.1 (fouriernet)" in said
    assert drawn
    assert not [name for name in drawn if "encoder" in name]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["weights"], "no weights that are independent of tokens. Give a sentence of the source language"),
        (["weights", "--sentence", "  "], "--sentence has 1 token (its end symbol counted). Give text with words"),
        (["gates", "--sentence", "w3"], "no mixer of this model (shaw, attention) has weights and a gate"),
    ],
)
def test_one_clear_sentence(capsys, tmp_path, arguments, sentence):
    model = checkpoint(tmp_path / "model" / "model.pt", "shaw", **SMALL)
    what, *more = arguments
    more += ["--pretokenized", "--out", tmp_path / "figures"]
    assert sentence in fails(capsys, main, what, model, *more)
    assert not (tmp_path / "figures").exists(), "a folder was made for nothing"


def test_other_formats_of_pictures_are_refused(capsys):
    assert "--out a.pdf: .png and .svg are written" in fails(capsys, main, "curves", "run", "--out", "a.pdf")


def test_curves(capsys, tmp_path, monkeypatch):
    for name, updates in (("a", 20), ("b", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(training_log(updates))
    said = plot(capsys, "curves", tmp_path / "a", tmp_path / "b" / "train.log", "--out", tmp_path / "f.png")
    assert pictures(tmp_path) == {"f"}
    assert ">b<" in (tmp_path / "f.svg").read_text(), "train.log is called as its run"
    assert "f.svg" in said
    monkeypatch.chdir(tmp_path / "b")
    assert list(curves.logs_of([".", "../a"])) == ["b", "a"], "also where it is"
    svg = (tmp_path / "f.svg").read_text()
    for curve in curves.CURVES.values():
        assert f">{curve.title}<" in svg
    (tmp_path / "empty").mkdir()
    assert "empty/train.log: there is no such log" in fails(capsys, main, "curves", tmp_path / "empty")
    (tmp_path / "empty" / "train.log").write_text("hello\n")
    assert "no records of fairseq-train. They are there with --log-format json" in fails(
        capsys, main, "curves", tmp_path / "empty"
    )


def test_curves_of_cross_entropy(tmp_path):
    """Its loss is the negative log-likelihood, which fairseq does not log again."""
    log = tmp_path / "train.log"
    log.write_text(training_log())
    expected = {name: curves.points(log, curves.CURVES[name]) for name in ("loss", "validation loss")}
    log.write_text(training_log().replace("valid_nll_loss", "valid_loss").replace('"nll_loss"', '"ppl": 1, "loss"'))
    assert {name: curves.points(log, curves.CURVES[name]) for name in expected} == expected
    assert len(expected["loss"][0]) == 20


def test_dollar_signs_are_no_mathematics(tmp_path):
    (tmp_path / "log").write_text(training_log())
    labels = ("lr$x_$", "$a$b")
    curves.draw({label: [tmp_path / "log"] for label in labels}, tmp_path / "f", ("loss",), ("svg",))
    assert all(f">{label}<" in (tmp_path / "f.svg").read_text() for label in labels)


def test_curves_of_runs_that_resumed_or_have_not_begun(tmp_path):
    logs = {f"system {number}": [tmp_path / f"{number}.log"] for number in range(20)}
    for number, (path,) in enumerate(logs.values()):
        path.write_text(training_log(start=8 + number / 10) + training_log(updates=10) * (number % 2))
    logs["not begun"] = [tmp_path / "none.log"]
    assert curves.points(tmp_path / "1.log", curves.CURVES["validation loss"])[0] == [5, 10, 15, 20]
    assert curves.draw(logs, tmp_path / "f", ("loss", "validation loss"), ("png",)) == [tmp_path / "f.png"]
    with Image.open(tmp_path / "f.png") as image:
        assert image.width > 1000
        assert len(image.convert("RGB").getcolors(10**6)) > 50


SYSTEMS = ("aposnet", "aposnet_ungated", "shaw", "shaw_gated", "lightconv")


def report(tmp_path, columns):
    """The report of posnet-score on systems with invented outputs."""
    test_set = made_up.made_up_test_set("test", SYSTEMS, segments=20, runs=1, metrics=made_up.METRICS[:2])
    comparison = made_up.compared(SYSTEMS, [test_set])
    (tmp_path / "report.json").write_text(as_json(replace(comparison, columns=columns)))
    return tmp_path / "report.json"


def test_compare(capsys, tmp_path):
    columns = {
        "params": {name: f"{3 + i / 10:.2f}M" for i, name in enumerate(SYSTEMS)},
        "decode sent./s (not comparable)": {name: 100 + i for i, name in enumerate(SYSTEMS)},
        "gate": {name: "none" if name in ("aposnet_ungated", "shaw") else "gelu" for name in SYSTEMS},
    }
    plot(capsys, "compare", report(tmp_path, columns), "--out", tmp_path / "f")
    assert pictures(tmp_path / "f") == {"compare.params", "compare.decode", "compare.gates"}
    gates = (tmp_path / "f" / "compare.gates.svg").read_text()
    assert "(aPosNet)" in gates
    assert "(relative)" not in gates
    assert "(aPosNet)" not in (tmp_path / "f" / "compare.params.svg").read_text()
    assert "decode sent./s (not comparable)" in (tmp_path / "f" / "compare.decode.svg").read_text()


def test_compare_without_pairs_of_gates(capsys, tmp_path):
    path = report(tmp_path, {"params": dict.fromkeys(("shaw", "lightconv"), "3,100,000")})
    assert "no mixer is in the report with and without a gate" in plot(capsys, "compare", path, "--out", tmp_path / "f")
    assert pictures(tmp_path / "f") == {"compare.params"}


def test_gates_of_the_papers_figure():
    """All five kinds of its Figure 2 are in the list of Table 6."""
    systems = read_systems(find_list("table-6"))
    gates = {system.name: "gelu" if re.search("_gated|posnet$", system.name) else "none" for system in systems}
    found = score_pictures._gated(SimpleNamespace(systems=list(gates), columns={"gate": gates}))
    assert list(found) == list(score_pictures.INFORMATION)


def test_compare_with_units_in_the_title(capsys, tmp_path):
    """Parameters in millions, as a title says, stay millions; a cell that cannot be read is named."""
    path = report(
        tmp_path, {"params (M)": {"shaw": 3.1, "lightconv": "3.2M", "aposnet": "3.3 million", "shaw_gated": "–"}}
    )
    said = plot(capsys, "compare", path, "--out", tmp_path / "f")
    assert "params (M): aposnet has '3.3 million', which is no number such as 3.1M; it is not in the picture" in said
    assert "shaw_gated has" not in said
    axis = (tmp_path / "f" / "compare.params.svg").read_text()
    assert ">millions of parameters<" in axis
    assert ">3.14<" in axis


@pytest.mark.parametrize("text", ["", '{"test_sets": [], "systems": [], "columns": {}}'])
def test_no_report(capsys, tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    assert "is no report.json of posnet-score" in fails(capsys, main, "compare", tmp_path / "report.json")


def test_nothing_to_draw_scores_against(capsys, tmp_path):
    path = report(tmp_path, {"remark": {"shaw": "old"}, "train memory": {"shaw": 3}})
    said = fails(capsys, main, "compare", path, "--out", tmp_path / "f")
    assert "has no columns of parameters or speed to draw scores against" in said
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("fact", "number"),
    [("3.10M", 3.1e6), ("3,100", 3100), (2815, 2815), (1.5, 1.5), ("1.2 GiB", None), ("–", None), ("1.2.3", None)]
    + [("3.1e6", 3.1e6), ("3.1E+06", 3.1e6)],
)
def test_figures_of_columns(fact, number):
    assert score_pictures._number(fact) == number


def test_long_chinese_sentences_and_many_heads(tmp_path):
    """100 tokens: axes name every tenth position instead of printing names over each other."""
    tokens = [f"第{index}$个" for index in range(100)]
    ones = torch.rand(4, 100, 100)
    mixing = Mixing(
        place="cross", layer=1, mixer="attention", queries=tokens, keys=tokens, weights=ones,
        hidden=ones[0] > 1, energies=None, added=None, reach=None, at=torch.arange(100), query_gates=None,
        token_gates=None,
    )  # fmt: skip
    style.save(matrices.of_heads(mixing, ones, "mixing weights α"), tmp_path / "figure")
    svg = (tmp_path / "figure.svg").read_text()
    assert ">head 4<" in svg
    assert "第" not in svg
    (tmp_path / "page.html").write_text(of_model.render([mixing], "title"))
    assert content(tmp_path / "page.html")[0]["keys"] == tokens
    few = matrices.of_heads(
        Mixing(**(vars(mixing) | {"queries": tokens[:4], "keys": tokens[:4], "at": torch.arange(4)})),
        ones[:, :4, :4],
        "w",
    )
    style.save(few, tmp_path / "few")
    assert "第1$个" in (tmp_path / "few.svg").read_text().replace("\\", "")


def test_negative_weights_have_a_color_of_their_own():
    weights = torch.tensor([[0.5, -0.25]])
    colors = matrices._scale([matrices.Panel("head 1", weights, "α")], "α")
    assert colors.norm(0.0) == 0.5
    assert colors.norm(-0.5) == 0.0
    assert matrices._scale([matrices.Panel("head 1", weights.abs(), "α")], "α").norm(0.0) == 0.0


def test_characters_that_no_font_has():
    assert style.characters_without_font(["abc", "ü", "\U0010ffff"]) == ["\U0010ffff"]


def crossbars(folder, *rows):
    """A folder of posnet-analog, with (system, seconds, bits, BLEU)."""
    folder.mkdir(parents=True)
    scores = [
        {"system": system, "metric": "BLEU", "score": bleu, "deviation": 0.2, "seconds": seconds, "adc_bits": bits}
        for system, seconds, bits, bleu in rows
    ]
    scores[0] |= {"deviation": None}
    (folder / "report.json").write_text(json.dumps({"scores": [*scores, {"system": "digital", "metric": "chrF"}]}))
    return folder


DIGITAL = ("digital", None, None, 25.0)


def test_crossbars_by_time_and_by_bits(tmp_path, capsys):
    one = crossbars(tmp_path / "rposnet", DIGITAL, ("25s", 25, 8, 24.0), ("1y", 365 * 86400, 8, 22.0))
    two = crossbars(tmp_path / "shaw", DIGITAL, ("1d 4 bits", 86400, 4, 14.0), ("1d 8 bits", 86400, 8, 23.0))
    (tmp_path / "figures").mkdir()
    assert "analog:" in plot(capsys, "analog", one, two, "--out", tmp_path / "figures/both.png")
    assert pictures(tmp_path / "figures") == {"both"}
    drawn = (tmp_path / "figures/both.svg").read_text()
    assert all(text in drawn for text in ("rposnet", "shaw", "1 y", "time since programming", "bits of the converters"))
    other = crossbars(tmp_path / "other" / "shaw", DIGITAL, ("25s", 25, 8, 24.0), ("1y", 365 * 86400, 8, 22.0))
    plot(capsys, "analog", two, other, "--out", tmp_path / "figures/both.png")
    assert all(f">{folder}<" in (tmp_path / "figures/both.svg").read_text() for folder in (two, other))


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([DIGITAL, ("1d", 86400, 8, 24.0)], "one time and one number of bits make no line."),
        ([DIGITAL, ("1d", None, 8, 24.0)], "has no scores by time and bits."),
        ([DIGITAL, ("1d", 1, 8, "high")], "is no report of posnet-analog: Expected `float | null`, got `str` - at"),
    ],
)
def test_crossbars_that_cannot_be_drawn(tmp_path, capsys, rows, sentence):
    folder = crossbars(tmp_path / "one", *rows)
    assert sentence in fails(capsys, main, "analog", str(folder), "--out", str(tmp_path / "two"))
    assert sorted(tmp_path.iterdir()) == [folder]
