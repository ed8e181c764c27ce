"""Settings of runs: one declaration for flags and YAML files, and one sentence for whatever is wrong with them."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from posnet_fairseq.cli.run import TARGETS, _set_up_processes, find_target, main
from posnet_fairseq.runs import parsers
from posnet_fairseq.runs.commands import options_of
from posnet_fairseq.runs.run_settings import STAGES, RunSettings, TranslationData, hyperparameters
from posnet_fairseq.shared.errors import UsageError, flag
from posnet_fairseq.transformer.sizes import SIZES
from support.commands import fails, modules_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*words, target="wmt14.en-de"):
    return find_target(target).read(target, list(words))


def test_hyperparameters_are_those_of_the_size_and_flags_win():
    found = read("--size", "big", "--lr", "1e-3")
    assert (found.lr, found.tokens, found.average) == ("1e-3", 27200, 20)
    assert read().lr == "7e-4"  # as it is written, not 0.0007


@pytest.mark.parametrize(
    ("dataset", "size"),
    [("wmt14.en-de", "base"), ("iwslt14.de-en", "iwslt"), ("multi30k-lc.en-fr", "multi30k"), ("study.en-de", "tiny")],
)
def test_size_is_that_of_the_dataset(dataset, size):
    assert read(target=dataset).size == size


def test_every_size_has_every_hyperparameter():
    names = {name for name in RunSettings.fields() if name in hyperparameters("tiny")}
    assert all(set(hyperparameters(size)) - {"patience"} == names for size in SIZES)  # patience has a default


def test_stages_and_flags_may_be_mixed():
    found = read("score", "--mixer", "shaw", "--tensorboard", "train", "--options=--shaw-values")
    assert (found.stages, found.mixer, found.tensorboard) == (("train", "score"), "shaw", True)
    assert found.options == "--shaw-values"
    assert read().stages == read("train", "all").stages == STAGES


def test_mixers_of_places_are_options_of_the_training_and_name_the_run(folder):
    found = read("--size", "tiny", "--encoder-self-mixer", "lightconv,lightconv, attention", "--cross-mixer", "rposnet")
    assert found.run.name == "rposnet_encoder.lightconv-2+attention_cross.rposnet_tiny_s1"
    chosen = ["--encoder-self-mixer", "lightconv,lightconv,attention", "--cross-mixer", "rposnet"]
    assert found.model_options == chosen
    assert options_of(found, TranslationData("en", "de", "key"))[-4:] == chosen
    with pytest.raises(UsageError, match=r"--stop-on bleu: BLEU needs different tokenizers for zh\+en"):
        options_of(read("--stop-on", "bleu"), TranslationData("de", "zh+en", "key"))
    assert "bleu" in options_of(read("--stop-on", "bleu"), TranslationData("en", "de+fr", "key"))
    assert read("--name", "mine", "--decoder-self-mixer", "shaw").system == "mine"
    with pytest.raises(UsageError, match=r"--cross-mixer shaw,,rope: a value beside a comma is missing\."):
        read("--cross-mixer", "shaw,,rope")
    (folder / "run.yaml").write_text("encoder-self-mixer: [shaw, rope]\n")
    assert read("--config", "run.yaml").encoder_self_mixer == "shaw,rope"


def test_file_has_the_settings_that_no_flag_gives(folder):
    (folder / "run.yaml").write_text(
        "size: tiny\nmax-tokens: 600\nlr: 1e-3\nmetrics: [bleu, ter]\nstages: [train, score]\ntensorboard: false\n"
    )
    found = read("--config", "run.yaml", "--lr", "3e-3")
    assert (found.size, found.max_tokens, found.lr, found.metrics) == ("tiny", 600, "3e-3", ("bleu", "ter"))
    assert (found.stages, found.tensorboard, found.beam) == (("train", "score"), False, 5)


def test_a_short_training_has_the_checkpoints_that_are_averaged(folder):
    short = read("--data", "data", "--size", "iwslt", "--updates", "100")
    assert (short.updates, short.interval) == (100, 100 // short.average)
    assert read("--data", "data", "--size", "iwslt", "--updates", "100", "--average", "2").interval == 50
    usual = read("--data", "data", "--size", "iwslt")
    assert read("--data", "data", "--size", "iwslt", "--updates", "90000").interval == usual.interval


@pytest.mark.parametrize("word", ["off", "no", "False", "0"])
def test_a_switch_that_is_off_in_a_file_is_off(folder, word):
    (folder / "run.yaml").write_text(f"dry_run: {word}\n")
    assert not read("--config", "run.yaml").dry_run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ("transformer_pos rposnet", "transformer_pos", 2000, 100, 5, 1, 2)),
        (["--updates", "30", "--mixers", "shaw,rope", "--jobs", "1"], ("shaw,rope", "shaw", 30, 2, 1, 1, 1)),
        (["table-4", "--gpus", "1"], ("", "", 2000, 100, 5, None, 2)),
    ],
)
def test_quickstart_is_a_comparison_with_defaults(words, expected):
    found = read(*words, target="quickstart")
    assert (found.dataset, found.size, found.seeds) == ("quickstart.en-de", "tiny", (1,))
    names = "mixers baselines updates interval average cpus jobs".split()
    assert tuple(getattr(found, name) for name in names) == expected


def test_the_programs_of_this_environment_stand_first(monkeypatch):
    monkeypatch.setenv("PATH", f"/usr/bin:{Path(sys.executable).parent}")
    monkeypatch.setattr("os.environ", dict(os.environ))
    _set_up_processes()
    assert os.environ["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_folders_are_those_of_the_working_directory(folder):
    assert read().run == Path("runs/wmt14.en-de/rposnet_base_s1")
    assert read("--runs", "../mine").run == folder.parent / "mine/wmt14.en-de/rposnet_base_s1"
    assert read("--runs=~/mine").run == Path.home() / "mine/wmt14.en-de/rposnet_base_s1"


@pytest.mark.parametrize(
    ("parse", "good", "bad"),
    [
        (parsers.whole_number, "1 9999999", "0 -1 1.5 ten 1e5 10000000"),
        (parsers.number, "0 0.1 7e-4 .5 2.", "-1 fast nan inf 1e999 1e100 " + "9" * 41 + " 1_0 \u0661 1/3 ."),
        (parsers.rate, "7e-4 1", "0 0.0 -1 x"),
        (parsers.fraction, "0 0.5", "1 5 -0.1 x"),
        (parsers.betas, "(0.9,0.98) (0,.5)", "0.9 0.9,0.98 (0.9) (0.9,0.98 (0.9,1) (0,0,0) (a,b) (0.9,-1) exit()"),
        (parsers.run_name, "rposnet a.b-c+1 " + "a" * 200, "../x a/b .. - " + "a" * 201),
        (parsers.seed_numbers, "1 1,2", "1,1 1,01 x 1,two ,"),
        (parsers.several(parsers.rate), "1e-3 1e-3,2e-3", "1e-3,1e-3 0 ,"),
    ],
)  # fmt: skip
def test_values(parse, good, bad):
    for text in good.split():
        parse(text)
    for text in bad.split():
        with pytest.raises(ValueError, match="give "):
            parse(text)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["wmt14.ende"], "wmt14.ende: there is no such target. Choose one of .* Did you mean wmt14.en-de?"),
        (["wmt14.en-de", "--mixr", "rposnet"], "--mixr: wmt14.en-de takes no such option; .* Did you mean --mixer?"),
        (["wmt14.en-de", "--mixer", "rposnt"], "--mixer rposnt: choose one of .* Did you mean rposnet?"),
        (["wmt14.en-de", "--node-rank", "1"], "--node-rank 1: with --nodes 1, give 0 to 0"),
        (["corpus"], "no data is named: give --dataset quickstart.en-de, or --data FOLDER"),
        (["wmt14.en-de", "--dataset", "wmt18.en-zh"], "--dataset wmt18.en-zh: wmt14.en-de is a dataset itself."),
        (["corpus", "--data", "a:b"], "--data .*/a:b: fairseq takes a colon"),
        (["corpus", "--data", "/dev/null"], "--data /dev/null: a file. Give the folder of a dataset."),
        (["wmt14.en-de", "--runs", "/dev/null/x"], "--runs /dev/null/x: /dev/null is no folder that can be written to"),
        (["wmt14.en-de", "--init-from", "none.pt"], "none.pt: there is no such checkpoint. Check the path."),
        (["compare", "tabel-4", "--dataset", "wmt14.en-de"], "tabel-4: there is no such file.* Did you mean table-4?"),
        (["compare", "--dataset", "wmt14.en-de"], "--mixers: give one file of systems"),
        (["wmt14.en-de", "--config", "x.yaml"], "x.yaml: No such file or directory"),
        (["wmt14.en-de", "--gpus", "1", "--cpus", "1"], "--gpus 1: give that or --cpus 1."),
        (["wmt14.en-de", "--updates", "5"], "--average 7: 5 .* Set a smaller --average or --interval"),
        (["wmt14.en-de", "--max-len-b", "0"], "--max-len-b 0: give a whole number, 1 to"),
        (["multi30k.en-de", "--patience", "2"], "--patience 2: .* 10 in all, .* for 9 validations at least"),
        (["multi30k.en-de", "--stop-on", "blue"], "--stop-on blue: choose one of bleu. Did you mean bleu?"),
        (["wmt14.en-de", "--options=--x 'a b'"], "quotes are not understood there"),
        (["wmt14.en-de", "--cross-mixer", "shaw", "--options=--x --cross-mixer=irpe"], "--options has it, too"),
        (["wmt14.en-de", "--encoder-self-mixer", "shaw,roep"], "--encoder-self-mixer roep: .* Did you mean rope?"),
        (["corpus", "--data", "x", "--decoder-self-mixer", ",".join(["shaw", "rope"] * 22)], "too long. Give the run"),
        (["corpus", "--data", "x", "--seed", ""], "--seed: empty, as of an unset shell variable. Give a value"),
        (["wmt14.en-de", "train", "train"], "stage train train: give one or more"),
        (["wmt14.en-de", "--cpus", "1", "--precision", "fp16"], "--precision fp16: CPUs train in fp32 or bf16"),
        (["quickstart", "--jobs", "2", "--nodes", "2"], "--jobs 2: runs on several machines .* Leave it out"),
        (["corpus", "--data", "none", "--cpus", "1"], "none: posnet-prepare has not made this folder"),
        (["corpus", "--data", "none", "--cpus", "1", "train"], "none: there is no dataset yet. Run the stage prepare"),
    ],
)  # fmt: skip
def test_misuse_is_one_sentence(folder, monkeypatch, capsys, words, sentence):
    monkeypatch.setattr("os.environ", dict(os.environ))
    line = fails(capsys, main, *words)
    assert re.search(sentence.replace("?", r"\?").replace("${", r"\${"), line), line
    assert not list(folder.iterdir())


def test_a_recipe_refuses_the_folder_of_another_dataset(folder, monkeypatch, capsys):
    monkeypatch.setattr("os.environ", dict(os.environ))
    card(folder)
    words = "--data", ".", "--cpus", "1", "prepare"
    for target in ("multi30k.en-de", "corpus"):
        main([target, *words])
        assert "is ready" in capsys.readouterr().err
    line = fails(capsys, main, "wmt14.en-de", *words)
    assert "has the dataset multi30k.en-de.join5, not wmt14.en-de. Give another folder" in line


@pytest.mark.parametrize("stage", STAGES[2:])
def test_a_stage_without_the_one_before_it_is_refused(folder, monkeypatch, capsys, stage):
    monkeypatch.setattr("os.environ", dict(os.environ))
    card(folder)
    (folder / "test.en").touch()
    line = fails(capsys, main, "corpus", "--data", ".", "--cpus", "1", stage)
    assert line.endswith(f" yet. Run the stage {STAGES[STAGES.index(stage) - 1]} first.")
    assert sorted(os.listdir(folder)) == ["dataset.json", "test.en"]


def card(folder):
    """Write the card of a dataset whose sentences were joined."""
    languages = {"source_lang": "en", "target_lang": "de", "key": "k"}
    (folder / "dataset.json").write_text(json.dumps({"dataset": "multi30k.en-de.join5", **languages}))


@pytest.mark.parametrize(
    ("options", "given", "lacking"),
    [
        ("--gate none", ["--label-smoothing", "--adam-betas", "--adam-eps"], []),
        ("--criterion=cross_entropy", ["--adam-betas"], ["--label-smoothing"]),
        ("--criterion label_smoothed_cross_entropy --optimizer adam", ["--label-smoothing", "--adam-eps"], []),
        ("--optimizer sgd", ["--label-smoothing"], ["--adam-betas", "--adam-eps"]),
    ],
)
def test_other_criterions_and_optimizers_have_their_own_options(options, given, lacking):
    words = options_of(read(f"--options={options}"), TranslationData("en", "de", "key"))
    assert set(given) <= {*words}
    assert not {*lacking} & {*words}


def test_options_that_the_recipe_sets_are_refused():
    words = "--seed=3 -ashaw_tiny -tde --disable-validation --best-checkpoint-metric --keep-interval-updates --task=x"
    for word in [*words.split(), "--source-lang", "--train-subset"]:
        with pytest.raises(UsageError, match=rf"recipe sets {word}, or depends on it. Use its own .*--mixer, --size"):
            read(f"--options=--gate none {word} 1")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mixr: shaw", "run.yaml: mixr: there is no such setting. Did you mean mixer?"),
        ("max-tokens: 600\nmax_tokens: 700", "run.yaml: max_tokens: this setting is there twice, with - and with _."),
        ("mixer: {a: b}", "run.yaml: mixer: give one value, or a list of values."),
        ("mixer: [a: 1]", "run.yaml: mixer: give one value, or a list of values."),
        ("", "run.yaml: give settings, each in a line"),
        ("- mixer", "run.yaml: give settings, each in a line"),
        ("dry_run: maybe", "--dry-run maybe: give one of 1 true yes on 0 false no off."),
        ("size: !!python/object/apply:os.system ['touch x']", "--size touch x: choose one of"),
    ],
)
def test_bad_file_is_one_sentence(folder, text, sentence):
    (folder / "run.yaml").write_text(text)
    with pytest.raises(UsageError) as raised:
        read("--config", "run.yaml")
    assert sentence in str(raised.value)
    assert os.listdir(folder) == ["run.yaml"]


def help_of(capsys, *words):
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    return capsys.readouterr().out


def test_help_has_every_target_and_setting(capsys):
    shown = help_of(capsys)
    assert all(target in shown for target in ("wmt18.en-zh", *TARGETS))
    for target in ("wmt14.en-de", *TARGETS):
        shown, named = help_of(capsys, target), find_target(target)
        assert all(flag(name) in shown for name in named.imported(named.settings).flags()), target


def test_settings_are_looked_up_without_torch_and_fairseq():
    """Whatever is mistyped is said at once."""
    program = "from posnet_fairseq.cli.run import TARGETS; [each.imported(each.settings) for each in TARGETS.values()]"
    assert not {"torch", "fairseq", "omegaconf", "matplotlib"} & modules_of(program)
