"""Search settings that a model records: who writes them, who carries them on, and who searches with them."""

import json

import pytest
import torch

import posnet_fairseq as posnet
from posnet_fairseq.cli import average, export, translate
from posnet_fairseq.inference.search.search_settings import recorded_search
from posnet_fairseq.shared.errors import UsageError
from support.checkpoints import checkpoint, precomputed
from support.commands import fails

SEARCH = {"beam": 3, "lenpen": 0.5, "max_len_a": 1.5, "max_len_b": 2}
OPTIONS = "--beam 3 --lenpen 0.5 --max-len-a 1.5 --max-len-b 2".split()
TEXT = "w1 w2 w3\nw4 w5 w6 w7 w8 w9\n"


@pytest.fixture
def averaged(tmp_path):
    """A checkpoint that records SEARCH."""
    for number in (1, 2):
        path = checkpoint(tmp_path / "run" / f"checkpoint_1_{number}.pt", "rposnet", updates=number)
    state = torch.load(path, weights_only=False)
    torch.manual_seed(1)
    for name, tensor in state["model"].items():
        if name.endswith("weight"):  # so that beams differ
            tensor.normal_(std=0.5)
    torch.save(state, path)
    out = tmp_path / "averaged.pt"
    average.main([str(path.parent), "--num", "1", "--out", str(out), *OPTIONS])
    return out


@pytest.fixture
def translated(tmp_path, capsys):
    """A function that translates TEXT; it returns the lines and what was said."""
    (tmp_path / "text").write_text(TEXT)

    def run(model, *arguments):
        capsys.readouterr()
        models = model if isinstance(model, list) else [model]
        translate.main([*map(str, models), "--input", str(tmp_path / "text"), "--pretokenized", "--cpu", *arguments])
        return capsys.readouterr()

    return run


def test_posnet_average_records_what_it_is_given(averaged, tmp_path, capsys):
    assert torch.load(averaged, weights_only=True)["extra_state"]["search"] == SEARCH
    average.main([str(tmp_path / "run"), "--num", "2", "--out", str(tmp_path / "plain.pt")])
    assert "search" not in torch.load(tmp_path / "plain.pt", weights_only=True)["extra_state"]
    arguments = [tmp_path / "run", "--num", "1", "--out", tmp_path / "x.pt", "--beam", "0"]
    capsys.readouterr()
    assert "--beam 0: give 1 or more" in fails(capsys, average.main, *arguments)


@pytest.mark.parametrize("kind", ["averaged", "precomputed", "copied", "exported"])
def test_a_model_is_searched_with_its_own_settings_unless_others_are_given(averaged, translated, tmp_path, kind):
    model = averaged
    if kind == "precomputed":
        model = precomputed(averaged)
    elif kind == "copied":
        path = checkpoint(tmp_path / "attention" / "checkpoint_1_1.pt", "attention")  # of a mixer that stores nothing
        average.main([str(path.parent), "--num", "1", "--out", str(path.parent / "averaged.pt"), *OPTIONS])
        model = precomputed(path.parent / "averaged.pt", "--or-copy")
    elif kind == "exported":
        model = tmp_path / "model"
        export.main([str(averaged), "--out", str(model), "--pretokenized"])
        assert json.loads((model / "config.json").read_text())["search"] == SEARCH
    out, err = translated(model)
    assert (
        "posnet-translate: search settings from the model: --beam 3 --lenpen 0.5 --max-len-a 1.5 --max-len-b 2" in err
    )
    expected, said = translated(model, *OPTIONS)
    assert out == expected
    assert "records" not in said
    greedy, said = translated(model, "--beam", "1", "--max-len-b", "9")
    assert "posnet-translate: search settings from the model: --lenpen 0.5 --max-len-a 1.5" in said
    assert greedy == translated(model, "--beam", "1", "--lenpen", "0.5", "--max-len-a", "1.5", "--max-len-b", "9").out
    assert greedy != out
    loaded = posnet.load(model, pretokenized=True)
    assert loaded.translate(TEXT.splitlines()) == out.splitlines()
    assert loaded.translate(TEXT.splitlines(), beam=1, max_len_b=9) == greedy.splitlines()


def test_an_ensemble_is_searched_as_its_first_model(averaged, translated, tmp_path):
    average.main([str(tmp_path / "run"), "--num", "1", "--out", str(tmp_path / "plain.pt")])
    models = [averaged, tmp_path / "plain.pt"]
    out, err = translated(models)
    assert "search settings from the model" in err
    assert out == translated(models, *OPTIONS).out
    out, err = translated(models[::-1], "--max-len-b", "6")
    assert "records" not in err
    assert out == translated(models, *"--beam 12 --lenpen 1 --max-len-a 0 --max-len-b 6".split()).out


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ([5], r"the search settings that it records are \[5\], not values of beam, lenpen, max_len_a, max_len_b"),
        ({"seed": 1}, "the search settings that it records are {'seed': 1}, not values of beam"),
        ({"beam": 10**9}, "the search settings that it records are not allowed: --beam 1000000000: give 1 or more"),
    ],
    ids=str,
)
def test_values_that_no_option_may_have_are_refused(averaged, translated, tmp_path, capsys, found, sentence):
    state = torch.load(averaged, weights_only=True)
    state["extra_state"]["search"] = found
    with pytest.raises(UsageError, match=sentence):
        recorded_search(state)
    torch.save(state, averaged)
    said = fails(capsys, translate.main, averaged, "--input", tmp_path / "text", "--pretokenized", "--cpu")
    assert f"{averaged}: the search settings that it records are" in said
