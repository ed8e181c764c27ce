"""How far precisions are from float32, and which one --dtype auto takes."""

import json

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq_cli import preprocess

from posnet_fairseq import api
from posnet_fairseq.cli import export, translate
from posnet_fairseq.fairseq_plugin import synthetic
from posnet_fairseq.inference import precision
from posnet_fairseq.inference.divergence import measure_divergence
from posnet_fairseq.inference.model_folder import read_divergence
from posnet_fairseq.inference.models import load_language_model, load_models
from posnet_fairseq.inference.packing.pack import pack
from posnet_fairseq.inference.precision import choose_dtype
from posnet_fairseq.shared.errors import UsageError
from support.building import WORDS, build_language_model
from support.checkpoints import checkpoint, language_model_checkpoint

PAIRS = [("w1 w2 w3", "w4"), ("w9", "w8 w7 w6 w5"), ("w3 " * 80, "w1"), ("w2 unknown", "w2 w2 w2")]
ENTRIES = 40


def binarised(folder, sides, split="valid"):
    """A set of a folder, as fairseq-preprocess writes it."""
    arguments = ["--workers", "1", f"--{split}pref", f"{folder}/text", "--destdir", str(folder)]
    for name, lines in sides.items():
        (folder / f"text{name}").write_text("".join(f"{line}\n" for line in lines))
        synthetic.dictionary(WORDS if not name else ENTRIES).save(str(folder / f"given{name}"))
    if "" in sides:
        arguments += ["--only-source", "--srcdict", f"{folder}/given"]
    else:
        arguments += ["-s", "xx", "-t", "yy", "--srcdict", f"{folder}/given.xx", "--tgtdict", f"{folder}/given.yy"]
    preprocess.main(fairseq_options.get_preprocessing_parser().parse_args(arguments))


@pytest.fixture
def trained(tmp_path):
    """A checkpoint with a validation set beside it, one of whose sentences is longer than its positions."""
    path = checkpoint(tmp_path / "data" / "averaged.pt", "rposnet", words=ENTRIES)
    binarised(path.parent, {".xx": [pair[0] for pair in PAIRS], ".yy": [pair[1] for pair in PAIRS]})
    return path


def expected(model, packed, pairs, first_symbol=2):
    """The mean over all tokens of Σ p · log(p / q), one sentence after another."""
    found = []
    for source, target in pairs:
        previous = torch.cat([torch.tensor([first_symbol]), target[:-1]])[None]
        p, q = (
            torch.softmax((one(previous) if source is None else one(source[None], previous))[0].double(), dim=-1)
            for one in (model, packed)
        )
        found += (p * (p / q).log()).sum(dim=1).tolist()
    return sum(found) / len(found)


@torch.inference_mode()
def test_divergence_is_that_of_all_tokens(trained):
    def load():
        (model,), vocabulary, folder, _ = load_models([trained])
        return model, vocabulary, folder

    model, vocabulary, folder = load()
    measured = measure_divergence(model, vocabulary, folder)
    pairs = [
        (vocabulary.source_dictionary.encode_line(source), vocabulary.target_dictionary.encode_line(target))
        for source, target in PAIRS
        if len(source.split()) < 60
    ]
    rounded, _, _ = load()
    pack(rounded, "bf16")
    assert measured["bf16"] == pytest.approx(expected(model, rounded, pairs), rel=1e-2, abs=1e-8)
    # In 8 bits a sentence is rounded with those beside it.
    coarse, _, _ = load()
    pack(coarse, "int8")
    assert measured["int8"] == pytest.approx(expected(model, coarse, pairs), rel=0.5)
    assert measured["int8"] > measured["bf16"] > 0
    everywhere, _, _ = load()
    everywhere.bfloat16()
    assert measured["bf16 on GPUs"] == pytest.approx(expected(model, everywhere, pairs), rel=0.2)
    assert measured["bf16 on GPUs"] > measured["bf16"]


@pytest.mark.parametrize("add_bos_token", [False, True])
@torch.inference_mode()
def test_divergence_of_language_models(tmp_path, add_bos_token):
    options = {"add_bos_token": add_bos_token}
    path = language_model_checkpoint(
        tmp_path / "lm.pt", "rposnet", build_language_model("rposnet", **options), **options
    )
    binarised(tmp_path, {"": ["w1 w2 w3", "w4 w5"]})
    model, vocabulary, folder = load_language_model(path)
    measured = measure_divergence(model, vocabulary, folder)
    rounded, _, _ = load_language_model(path)
    pack(rounded, "bf16")
    texts = [(None, vocabulary.target_dictionary.encode_line(line)) for line in ("w1 w2 w3", "w4 w5")]
    first = 0 if add_bos_token else 2
    assert measured["bf16"] == pytest.approx(expected(model, rounded, texts, first), rel=1e-2, abs=1e-8)


def test_sets_that_cannot_be_used(trained):
    (model,), vocabulary, folder, _ = load_models([trained])
    with pytest.raises(UsageError, match="holds no binarised validation set"):
        measure_divergence(model, vocabulary, folder.parent)
    binarised(folder, {".xx": ["w1 " * 80], ".yy": ["w1"]})
    with pytest.raises(UsageError, match="has no validation sentences that the model can read"):
        measure_divergence(model, vocabulary, folder)
    binarised(folder, {".xx": ["w1"] * 101, ".yy": ["w1"] * 150})
    with pytest.raises(UsageError, match="different numbers of sentences in its two languages"):
        measure_divergence(model, vocabulary, folder)


def test_export_measures_and_auto_reads(trained, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "model"
    export.main([str(trained), "--pretokenized", "--out", str(folder)])
    measured = read_divergence(folder)
    assert measured.keys() == {"bf16", "int8", "bf16 on GPUs"}
    assert (
        f"| divergence of int8 from float32 | {measured['int8']:.5f} nats a token |"
        in (folder / "README.md").read_text()
    )
    export.main([str(folder), "--pretokenized", "--out", str(tmp_path / "again")])
    assert read_divergence(tmp_path / "again") == measured
    monkeypatch.setattr(precision, "layer_speedup", lambda dtype: 2.0)
    monkeypatch.setattr(precision, "LARGEST_DIVERGENCE", 1.0)
    lines = tmp_path / "lines"
    lines.write_text("w1 w2\nw3\n")

    def translated(dtype):
        arguments = ["--pretokenized", "--cpu", "--input", str(lines), "--nbest", "1", "--max-len-b", "5"]
        translate.main([str(folder), *arguments, "--dtype", dtype])
        return capsys.readouterr()

    capsys.readouterr()
    automatic = translated("auto")
    assert automatic.out == translated("int8").out
    assert "--dtype auto is int8: its predictions are 0.00" in automatic.err
    model = api.load(folder, pretokenized=True, dtype="auto", device="cpu")
    assert model.dtype == "int8"
    for (best,) in model.translate(["w1 w2", "w3"], nbest=1, max_len_b=5):
        assert f"||| {best.text} ||| {best.score:.6f}" in automatic.out


def test_export_without_a_validation_set_says_so(tmp_path, capsys):
    path = checkpoint(tmp_path / "data" / "averaged.pt", "rposnet")
    export.main([str(path), "--pretokenized", "--out", str(tmp_path / "model")])
    assert "so --dtype auto will choose float32: " in capsys.readouterr().out
    assert read_divergence(tmp_path / "model") == read_divergence(path) == {}


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Makes folders whose precisions have some divergence, on a processor of which some are faster."""

    def make(*measured, **speedups):
        monkeypatch.setattr(precision, "layer_speedup", speedups.get)
        for number, each in enumerate(measured):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "config.json").write_text(json.dumps({"divergence": each}))
        return [tmp_path / str(number) for number in range(len(measured))]

    return make


NEAR, FAR = 0.00029, 0.00031


@pytest.mark.parametrize(
    ("measured", "speedups", "chosen"),
    [
        ([{"int8": NEAR, "bf16": NEAR}], {"int8": 2.0, "bf16": 3.0}, "int8"),
        ([{"int8": FAR, "bf16": NEAR}], {"int8": 2.0, "bf16": 3.0}, "bf16"),
        ([{"int8": FAR, "bf16": FAR}], {"int8": 2.0, "bf16": 3.0}, "float32"),
        ([{"int8": NEAR, "bf16": NEAR}], {"int8": 1.1, "bf16": 3.0}, "bf16"),
        ([{"int8": NEAR, "bf16": NEAR}], {"int8": 1.1, "bf16": 0.5}, "float32"),
        ([{"int8": NEAR, "bf16": NEAR}, {"int8": FAR, "bf16": NEAR}], {"int8": 2.0, "bf16": 2.0}, "bf16"),
        ([{"int8": NEAR, "bf16": NEAR}, {"int8": NEAR}], {"int8": 2.0, "bf16": 2.0}, "int8"),
        ([{"int8": NEAR, "bf16": NEAR}, {}], {"int8": 2.0, "bf16": 2.0}, "float32"),
    ],
)
def test_the_fastest_that_is_near_enough(folders, measured, speedups, chosen):
    assert choose_dtype(folders(*measured, **speedups), "cpu")[0] == chosen


@pytest.mark.parametrize(("supported", "chosen"), [(True, "bf16"), (False, "float32")])
def test_gpus(folders, monkeypatch, supported, chosen):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert choose_dtype(folders({"int8": NEAR, "bf16 on GPUs": NEAR}), "cuda")[0] == chosen
    assert choose_dtype(["averaged.pt"], "cuda")[0] == "float32"


def test_gpus_compute_all_in_bf16(folders):
    assert choose_dtype(folders({"bf16": NEAR, "bf16 on GPUs": FAR}), "cuda")[0] == "float32"
