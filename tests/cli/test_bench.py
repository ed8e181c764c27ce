import io
import json
import math

import pytest
import torch
from rich.console import Console

from posnet_fairseq.bench import (
    decode_speed,
    grid_speed,
    layers_speed,
    models_speed,
    timing,
    translate_speed,
)
from posnet_fairseq.bench.printed_tables import Measurements, as_json, table
from posnet_fairseq.cli import bench
from posnet_fairseq.inference import searchable
from posnet_fairseq.mixers.bases.building import build_mixer
from posnet_fairseq.registry import get_mixer, mixer_names
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import print_table
from posnet_fairseq.text.pipeline import TextPipeline
from support.checkpoints import checkpoint
from support.commands import fails
from support.searching import trained_model


def test_interleaved_runs_forwards_and_backwards_and_leaves_the_warm_up_out():
    calls, ticks = [], iter(range(100))
    functions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    seconds = timing.interleaved(functions, rounds=2, warm_up=1, clock=lambda: next(ticks))
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert seconds == {"a": [1, 1], "b": [1, 1]}


def test_models_are_measured():
    mixers = ["rposnet", "fouriernet", "mamba"]
    results = models_speed.measure_models(mixers, "tiny", sentences=2, length=3, beam=2, rounds=1, words=50)
    assert list(results) == [models_speed.BASELINE, *(f"{name}_tiny" for name in mixers)]
    assert all(time > 0 for of_model in results.values() for times in of_model for time in times)
    assert results[models_speed.BASELINE][0].ratio == pytest.approx(1)


def test_sentences_of_one_token_have_it():
    _, task, _ = decode_speed.build([], [], "tiny", words=50, longest=1)
    sample = models_speed.random_sample(task.source_dictionary, sentences=10, length=1)
    assert sample["net_input"]["src_tokens"].tolist() == [[task.source_dictionary.eos()]] * 10


@pytest.mark.parametrize("place", ["encoder", "decoder"])
def test_every_layer_is_measured(place):
    names = [name for name in mixer_names() if place in get_mixer(name).places]
    results = layers_speed.measure_layers(names, 5, size="tiny", tokens=15, place=place, padded=True, rounds=1)
    assert set(results) == set(names)
    assert all(min(*once, *training, peak) > 0 for once, training, peak in results.values())


def test_layers_take_options_after_plus_signs():
    small = {"size": "tiny", "tokens": 8, "place": "encoder", "padded": False, "rounds": 1}
    assert "shaw+shaw_values" in layers_speed.measure_layers(["shaw+shaw_values"], 4, **small)
    with pytest.raises(UsageError, match="values True: shaw does not read it; it reads clip_distance, shaw_values"):
        layers_speed.measure_layers(["shaw+values"], 4, **small)
    with pytest.raises(UsageError, match=r"--mixers fouriernet: fouriernet stands in encoder only"):
        layers_speed.measure_layers(["fouriernet"], 4, **small | {"place": "decoder"})
    with pytest.raises(UsageError, match="embed_dim '4'"):
        layers_speed.measure_layers(["shaw+embed_dim=4"], 4, **small)


@pytest.mark.parametrize("name", ["translution", "alpha_translution"])
@pytest.mark.parametrize("clip", [8, None])
def test_no_vector_of_a_pair_exists(name, clip):
    """Beyond the gradients of parameters, a few times the tokens and the energies are allocated."""
    batch, tokens, width, heads = 4, 64, 64, 2
    mixer = layers_speed.build(name, width, heads, "decoder", max_positions=tokens, translution_clip=clip)
    x = torch.randn(batch, tokens, width, requires_grad=True)
    gradients = sum(parameter.nbytes for parameter in mixer.parameters())
    peak = timing.peak_bytes(layers_speed.training(mixer, x))
    unit, vectors_of_pairs = x.nbytes + 4 * batch * heads * tokens**2, 4 * batch * tokens**2 * width
    assert peak - gradients < 8 * unit < vectors_of_pairs / 2


def test_mixers_on_a_grid_are_measured():
    names = ["irpe+irpe_on=qkv", "irpe+irpe_beta=1.5", "translution+translution_clip=2"]
    results = grid_speed.measure_grids(names, (3, 4), 1, batch=2, embed_dim=8, num_heads=2, rounds=1)
    assert list(results) == ["attention", *names]
    assert results["attention"][:2] == (1, 1)
    assert [figures.floor is not None for figures in results.values()] == [False, False, False, True]
    assert min(figures.time for figures in results.values()) > 0


@pytest.mark.parametrize(("clip", "matrices"), [(2, 5 * 5), (3, 5 * 7), (None, 5 * 7)])
def test_products_of_translution_on_a_grid_are_those_of_its_pairs(clip, matrices):
    """Every token with a partner at the offset, or beyond the clipped one."""
    rows, columns = 3, 4
    mixer = build_mixer("translution", 8, 2, grid=(rows, columns), extra_tokens=1, translution_clip=clip)
    counts = grid_speed.token_counts(mixer)
    assert len(mixer.matrices.values) == matrices + 3
    cells = [divmod(cell, columns) for cell in range(rows * columns)]
    reach = clip or 9

    def clipped(a, b):
        return tuple(max(-reach, min(reach, x - y)) for x, y in zip(a, b, strict=True))

    queries = {}
    for a in cells:
        for b in cells:
            queries.setdefault(clipped(a, b), set()).add(a)
    assert sorted(counts) == sorted([*map(len, queries.values()), rows * columns])


def test_peak_is_the_most_at_once():
    def call():
        first = torch.ones(1000)
        del first
        return torch.ones(2000), torch.ones(500)

    assert timing.peak_bytes(call) == 4 * 2500


def test_peak_of_the_process_is_that_of_one_call():
    size = 64 * 2**20
    assert 0.9 * size < timing.peak_resident(lambda: torch.ones(size // 4)) < 1.5 * size
    assert timing.peak_resident(lambda: None) < 0.1 * size


def test_checkpoints_of_another_size_are_named(tmp_path):
    path = str(checkpoint(tmp_path / "model.pt", "rposnet"))
    _, _, others = decode_speed.build([], [path], "tiny", words=50, longest=7)
    assert others == [path]


def test_every_engine_translates_to_the_given_length(monkeypatch):
    made = {}
    models, task, _ = decode_speed.build(["rposnet", "shaw,shaw,lightconv"], [], "tiny", words=50, longest=7)

    def run_once(engines, rounds, **_):
        made.update({name: engine() for name, engine in engines.items()})
        return {name: [1.0] for name in engines}

    monkeypatch.setattr(decode_speed, "interleaved", run_once)
    results = decode_speed.measure_decoding(models, task, "tiny", beam=2, length=7, sentences=3, rounds=1)
    for name, translations in made.items():
        if "CTranslate2" in name:
            assert [len(each.hypotheses[0]) + 1 for each in translations] == [7] * 3
        else:
            tokens = [each[0]["tokens"] if name == decode_speed.BASELINE else each[0].tokens for each in translations]
            assert list(map(len, tokens)) == [7] * 3
        assert results[name]["sentences"] == 3
    ours = {f"{name}_tiny, {dtype}" for name in ("rposnet", "shaw×2+lightconv") for dtype in ("float32", "int8")}
    assert {"CTranslate2, int8", *ours} <= set(made)
    assert results["CTranslate2, int8"]["peer"] == 1
    assert math.isnan(results[decode_speed.BASELINE]["peer"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("layers --lengths 0", "--lengths 0: give 1 or more"),
        ("models --mixers rposnt", "--mixers rposnt: there is no such mixer"),
        ("models --beam 3136", "--beam 3136: give 1 or more, and at most 3,135"),
        ("decode --words 10 --beams 1 10", "--beams 10: give 1 or more, and at most 9"),
        ("decode --checkpoints {0}/model.pt --lengths 25", "model.pt takes 24 tokens. Give at most that"),
        ("decode --checkpoints {0}/model.pt {0}/other.pt --lengths 9", "dictionaries of different sizes"),
    ],
)
def test_bad_input_of_benchmarks(tmp_path, capsys, arguments, sentence):
    checkpoint(tmp_path / "model.pt", "rposnet")
    checkpoint(tmp_path / "other.pt", "rposnet", words=41)
    assert sentence in fails(capsys, bench.main, *arguments.format(tmp_path).split())


@pytest.mark.thorough  # lengths are quick
def test_whole_files_are_translated_by_every_engine(tmp_path, capsys, monkeypatch):
    for module in (translate_speed, searchable):
        monkeypatch.setattr(module, "choose_pipeline", lambda *_: TextPipeline())
    monkeypatch.setattr(translate_speed, "elsewhere", lambda function, item: function(item))
    shape = {
        f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in (("layers", 1), ("embed_dim", 32))
    }
    models = [str(checkpoint(tmp_path / name / "averaged.pt", name, **shape)) for name in ("rposnet", "attention")]
    state = torch.load(models[1], weights_only=True)  # one that is trained ends its translations
    torch.save(state | {"model": trained_model("attention", 300)[0].state_dict()}, models[1])
    file = tmp_path / "text.xx"
    file.write_text("w1 w2\n\nw3 w4 w5\n")
    with pytest.raises(UsageError, match=r"dictionaries and dataset\.json\. Give a folder that posnet-export made"):
        translate_speed.measure_files(models, ["w1"], threads=1, rounds=1, beam=2)
    (tmp_path / "rposnet" / "dataset.json").write_text("{}")  # nobody reads it here
    bench.main(["translate", *models, str(file), "--rounds", "1", "--beam", "2", "--json"])
    printed = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in printed["tables"][0]["rows"]}
    assert len(rows) == 8
    assert rows["CTranslate2, float32"]["equal lines"] == rows[f"{models[1]}, float32"]["equal lines"] == 2
    assert all(row["peak"] >= row["at end"] > 0 < row["lines /CPU s"] for row in rows.values())
    assert len(printed["remarks"]) == 1
    with pytest.raises(UsageError, match="has no text"):
        translate_speed.measure_files(models, ["", " "], threads=1, rounds=1, beam=2)


def test_values_are_printed_in_the_formats_of_their_columns():
    shown = Measurements("T", {"a\nb": ",.1f", "p": ".2f"})
    shown.add("123", 1234.56, "the same")
    cells = [list(column.cells) for column in shown.printed().columns]
    assert cells == [["123"], ["1,234.6"], ["the same"]]
    rows = [{"name": "123", "a b": 1234.56, "p": "the same"}]
    assert as_json([shown, "remark"]) == {"tables": [{"title": "T", "rows": rows}], "remarks": ["remark"]}


def test_a_narrow_console_cuts_no_figures():
    shown = table("T", *(f"column {number}" for number in range(9)))
    shown.add_row("one more", *(f"{number}23,456.7 (x)" for number in range(9)))
    console = Console(file=io.StringIO(), width=40)
    print_table(shown, console)
    assert all(f"{number}23,456.7 (x)" in console.file.getvalue() for number in range(9))
