"""γ: measured, given, stored, refused."""

import shutil

import pytest
import torch
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from posnet_fairseq.cli import length_ratio as command
from posnet_fairseq.inference import measured_length_ratio
from posnet_fairseq.models.mixer_transformer import MixerTransformer
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.length_ratio_option import parse
from support import commands
from support.building import MAX_POSITIONS, WORDS, build_model, model_options, pad, sentences
from support.commands import fails


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two sentences of 5 and 1 tokens for 2 and 1, and a second part of one sentence of 3 for 3; plus end symbols."""
    folder = tmp_path_factory.mktemp("ratio")
    (folder / "text.xx").write_text("a b c d e\na\n")
    (folder / "text.yy").write_text("a b\na\n")
    (folder / "more.xx").write_text("a b c\n")
    (folder / "more.yy").write_text("a b c\n")
    for name, prefix, form in (("one", "text", "mmap"), ("two", "more", "mmap"), ("old", "text", "lazy")):
        arguments = (
            f"-s xx -t yy --joined-dictionary --workers 1 --destdir {folder}/{name} --trainpref {folder}/{prefix} "
            f"--dataset-impl {form}"
        )
        commands.run_program(pytest.MonkeyPatch(), "fairseq-preprocess", *arguments.split())
    return folder


def test_is_measured_with_end_symbols(data):
    assert measured_length_ratio.measure(data / "one") == (8, 5)
    assert measured_length_ratio.measure(data / "one", "yy", "xx") == (5, 8)
    assert measured_length_ratio.measure(f"{data}/one:{data}/two") == (12, 9)
    with pytest.raises(UsageError, match=r"old/train\.xx-yy\.xx\.idx is not of the memory-mapped format"):
        measured_length_ratio.measure(data / "old")


@pytest.mark.parametrize(
    "options", [{}, {"upsample_primary": 3}, {"train_subset": "train1"}, {"truncate_source": True}], ids=str
)
def test_is_that_of_the_sentences_that_the_task_loads(data, tmp_path, options):
    """train and train1 are one set; --train-subset is another, --upsample-primary and --truncate-source count."""
    shutil.copytree(data / "one", tmp_path / "one")
    for path in (data / "two").glob("train.*"):
        shutil.copy(path, tmp_path / "one" / path.name.replace("train", "train1"))
    known = {"train_subset": "train", "dataset_impl": None, "required_seq_len_multiple": 1, "upsample_primary": 1}
    places = {"data": str(tmp_path / "one"), "source_lang": "xx", "target_lang": "yy"}
    task = TranslationTask.setup_task(TranslationConfig(max_source_positions=4, **places | known | options))
    task.load_dataset(task.cfg.train_subset, combine=True)
    loaded = [*task.datasets[task.cfg.train_subset]]
    expected = tuple(sum(len(pair[side]) for pair in loaded) for side in ("source", "target"))
    assert measured_length_ratio.of_model(model_options(cross_mixer="rposnet"), task) == expected


def test_command_prints_it(data, capsys):
    command.main([str(data / "one")])
    assert capsys.readouterr().out == "1.600000 (8 source tokens / 5 target tokens)\n"
    for languages in (["-s", "yy", "-t", "xx"], ["-s", "yy"], ["-t", "xx"]):
        command.main([str(data / "one"), *languages])
        assert capsys.readouterr().out.startswith("0.625000 ")


def test_command_refuses_other_folders(data, capsys, tmp_path):
    assert "holds no binarized training set" in fails(capsys, command.main, tmp_path)
    for language in ("xx", "yy"):
        (tmp_path / f"train.xx-yy.{language}").write_text("a\n")
    assert "has its training set as text (--dataset-impl raw)" in fails(capsys, command.main, tmp_path)
    assert "holds no binarized training set" in fails(capsys, command.main, data / "one", "-s", "xx", "-t", "zz")


def harm(path, how):
    """Let a file be no more what it was: of so many bytes, of others, or none at all."""
    whole = path.read_bytes()
    path.unlink()
    if isinstance(how, int):
        path.write_bytes(whole[:how])
    elif how == "garbage inside":
        path.write_bytes(whole[:26] + b"\x09" + whole[27:])
    elif how == "of other data":
        path.write_bytes((path.parent.parent / "two" / path.name).read_bytes())


@pytest.mark.parametrize(
    ("end", "how", "expected"),
    [
        ("idx", "garbage inside", "train.xx-yy.xx.idx is damaged"),
        (
            "idx",
            "of other data",
            "xx.bin has 16 bytes, by its index train.xx-yy.xx.idx it should have 8: one of them is",
        ),
        ("bin", 10, "xx.bin has 10 bytes, by its index train.xx-yy.xx.idx it should have 16: one of them is cut short"),
        ("bin", "removed", "holds no binarized training set"),
    ],
)
@pytest.mark.quick_cases(1)
def test_damaged_data_is_named(data, tmp_path, capsys, monkeypatch, end, how, expected):
    """Before training too: fairseq itself would fail at the first sentence that is not there."""
    shutil.copytree(data, tmp_path / "data")
    folder = tmp_path / "data/one"
    harm(folder / f"train.xx-yy.xx.{end}", how)
    assert expected in fails(capsys, command.main, folder)
    settings = ["--disable-validation", "--max-update", "1", "--source-lang", "xx", "--target-lang", "yy"]
    for arch in ("rposnet_tiny", "transformer_pos_tiny"):
        arguments = commands.train_arguments(folder, tmp_path / "run", *settings, arch=arch)
        with pytest.raises((UsageError, OSError)) as error:
            commands.call(monkeypatch, "train", *arguments)
        assert ("Dataset not found" if how == "removed" else expected) in str(error.value)  # fairseq's own words
    assert not list(tmp_path.glob("run/*.pt"))


def test_sentences_for_damaged_dictionaries(data, tmp_path, monkeypatch):
    shutil.copytree(data / "one", tmp_path / "data")
    for damage in (b"a\n", b"a 1\na 2\n", b"\xff\xfe 1\n"):
        (tmp_path / "data/dict.xx.txt").write_bytes(damage)
        with pytest.raises(Exception, match=r"ictionary|encoding") as error:
            commands.call(monkeypatch, "train", *commands.train_arguments(tmp_path / "data", tmp_path / "run"))
        assert "dict.xx.txt is no dictionary as fairseq-preprocess writes it" in explain(error.value)


@pytest.mark.parametrize(
    ("given", "pair"), [("1.05", (21, 20)), ("2", (2, 1)), ("0.5", (1, 2)), ("auto", None), (None, None)]
)
def test_is_kept_as_a_fraction(given, pair):
    assert parse(given) == pair


@pytest.mark.parametrize("given", ["0", "1e7", "1e999999999", "many", "nan", "1/0", ""])
def test_nonsense_is_refused(given):
    with pytest.raises(
        UsageError, match=rf"--length-ratio {given}: give a number from 0.01 to 100, such as 1.05, or auto"
    ):
        build_model(cross_mixer="rposnet", length_ratio=given)


def test_is_refused_where_nothing_reads_it():
    with pytest.raises(UsageError, match=r"--length-ratio 1.5: --cross-mixer attention does not read it"):
        build_model(length_ratio="1.5")


def test_survives_half_precision_and_saving():
    model = build_model(cross_mixer="rposnet", length_ratio="1.0234")
    model.half().float()
    assert model.decoder.length_ratio_version.tolist() == [5117, 5000]
    measured = MixerTransformer.build_model(model_options(cross_mixer="rposnet"), synthetic.task(WORDS))
    with pytest.raises(UsageError, match="length ratio of source to target is unknown"):
        measured(pad(sentences(4)), None, pad(sentences(3)))
    measured.load_state_dict(model.state_dict())
    assert measured.decoder.length_ratio_version.tolist() == [5117, 5000]
    assert torch.isfinite(measured(pad(sentences(4)), None, pad(sentences(3)))[0]).all()


def test_another_number_than_the_checkpoints_is_refused():
    state = build_model(cross_mixer="rposnet", length_ratio="1.25").state_dict()
    build_model(cross_mixer="rposnet", length_ratio="1.25").load_state_dict(state)
    with pytest.raises(UsageError, match=r"length ratio of 1.25, but --length-ratio says 1.5"):
        build_model(cross_mixer="rposnet", length_ratio="1.5").load_state_dict(state)


def test_positions_beyond_the_longest_target_are_looked_up():
    """γ = 2: query 12 stands at 24, which a model of 24 target positions does not have itself."""
    short, long = (
        build_model(cross_mixer="aposnet", length_ratio="2", max_target_positions=limit)
        for limit in (MAX_POSITIONS, 64)
    )
    long.load_state_dict(short.state_dict())
    source, target = pad(sentences(9)), pad(sentences(20))
    torch.testing.assert_close(short(source, None, target)[0], long(source, None, target)[0])
