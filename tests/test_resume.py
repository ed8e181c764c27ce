"""posnet-translate, stopped and started again. That no byte of its notes needs to be whole: test_journal."""

import pickle
import re
import signal
import subprocess
import sys

import pytest

from posnet_fairseq.cli import _translating, export, translate
from posnet_fairseq.inference.packing import pack
from posnet_fairseq.inference.translator import Translator
from posnet_fairseq.shared.journal import Journal
from support import commands
from support.checkpoints import checkpoint

# Batches of one to three sentences: in other batches, some numbers differ in their last digits.
OPTIONS = "--pretokenized --cpu --beam 2 --max-len-b 6 --max-tokens 12".split()
SOURCES = ["w1 w2 w3 w4", "w5", "", "w6 w7 w8", "w9 w10", "w11 w12 w13 w14 w15 w16 w17 w18 w19", "w20", "w21 w22 w23"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("resume") / "model.pt", "rposnet")


@pytest.fixture
def run(model, tmp_path, monkeypatch, capfd):
    """Function from options to what the command says, in a folder with a text."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in SOURCES))

    def run(*more, code=0, batches=10**9, model=model):
        done = 0

        def interrupted(translator, sources):
            nonlocal done
            done += 1
            if done > batches:
                raise KeyboardInterrupt
            return original(translator, sources)

        original = Translator.translate
        with monkeypatch.context() as patch:
            patch.setattr(Translator, "translate", interrupted)
            arguments = [str(model), *OPTIONS, "--input", "text", "--output", "out", *more]
            if code:
                with pytest.raises(SystemExit) as end:
                    translate.main(arguments)
                assert end.value.code == code
            else:
                translate.main(arguments)
        return capfd.readouterr().err

    return run


@pytest.fixture
def whole(run, tmp_path):
    """What an uninterrupted command writes."""
    run()
    data = (tmp_path / "out").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("out")] == ["out"]
    (tmp_path / "out").unlink()
    assert [bool(line) for line in data.decode().split("\n")[:-1]] == [bool(line) for line in SOURCES]
    return data


@pytest.mark.parametrize("options", [["--nbest", "2", "--print-alignment"], ["--prefix", "begin"]])
def test_lists_and_beginnings_are_kept(run, tmp_path, options):
    (tmp_path / "begin").write_text("".join(f"{line.partition(' ')[0]}\n" for line in SOURCES))
    run(*options)
    expected = (tmp_path / "out").read_bytes()
    run(*options, code=130, batches=2)
    assert "were done before" in run(*options, "--resume")
    assert (tmp_path / "out").read_bytes() == expected
    run("--prefix", "begin", code=130, batches=2)
    assert "difference in: input." in run("--resume", code=2)


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_interrupted_after_any_batch_it_writes_the_same(run, whole, tmp_path, resume):
    batches = 4
    for finished in range(batches):
        run(*resume, code=130, batches=finished)
        assert not (tmp_path / "out").exists()
        assert (tmp_path / "out.partial").exists() == (finished > 0)
        said = run(*resume)
        assert (tmp_path / "out").read_bytes() == whole
        assert not (tmp_path / "out.partial").exists()
        again = re.search(r"(\d+) of 7 sentences were done before", said)
        new = re.search(r"(\d+) sentences in", said)
        assert int(again[1] if again else 0) + int(new[1]) == 7
        assert bool(again) == (finished > 0)
        (tmp_path / "out").unlink()


def test_interrupted_again_and_again(run, whole, tmp_path):
    for _ in range(3):
        run(code=130, batches=1)
    assert "6 of 7 sentences were done before" in run()
    assert (tmp_path / "out").read_bytes() == whole


def test_interrupted_before_the_output_is_written(run, whole, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_translating, "save_lines", interrupt)
        run(code=130)
    said = run(batches=0)
    assert "7 of 7 sentences were done before" in said
    assert "0 sentences in 0.0 s" in said
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.parametrize(
    ("changed", "says"),
    [("--beam 3", "beam"), ("--max-tokens 13", "max_tokens"), ("--dtype bf16 --fast", "packed_weights, fast, dtype")],
)
def test_other_options(run, whole, tmp_path, changed, says):
    run(code=130, batches=2)
    data = (tmp_path / "out.partial").read_bytes()
    said = run(*changed.split(), "--resume", code=2)
    assert f"out.partial is of other work, with a difference in: {says}. Give the same as then, or remove" in said
    assert (tmp_path / "out.partial").read_bytes() == data
    assert "done before" in run("--resume")
    assert (tmp_path / "out").read_bytes() == whole


def test_without_resume_other_options_begin_anew(run, whole, tmp_path):
    run("--beam", "3", code=130, batches=2)
    assert "done before" not in run()
    assert (tmp_path / "out").read_bytes() == whole
    assert not (tmp_path / "out.partial").exists()


def test_another_text_or_model(run, model, tmp_path):
    run(code=130, batches=2)
    (tmp_path / "text").write_text("w1\n")
    assert "difference in: input." in run("--resume", code=2)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in SOURCES))
    data = model.read_bytes()
    checkpoint(model, "rposnet", updates=2)
    try:
        assert "difference in: checkpoint." in run("--resume", code=2)
    finally:
        model.write_bytes(data)
    assert "done before" in run("--resume")


def test_output_in_a_model_folder(run, model, whole, tmp_path):
    """What else lies in the folder is neither the model nor read."""
    export.main([str(model), "--out", "folder", "--pretokenized"])
    inside = ("--output", "folder/out.txt")
    run(*inside, code=130, batches=2, model="folder")
    (tmp_path / "folder/README.md").write_text("edited")
    (tmp_path / "folder/encoder.onnx").write_text("a graph")
    assert "done before" in run(*inside, "--resume", model="folder")
    assert (tmp_path / "folder/out.txt").read_bytes() == whole
    run(*inside, model="folder")
    for name in ("config.json", "model.safetensors", *(path.name for path in tmp_path.glob("folder/dict.*"))):
        assert f"same file as folder/{name}" in run("--output", f"folder/{name}", code=2, model="folder")
    run("--output", "new", code=130, batches=2, model="folder")
    (tmp_path / "folder/config.json").write_bytes((tmp_path / "folder/config.json").read_bytes() + b" ")
    assert "difference in: checkpoint." in run("--output", "new", "--resume", code=2, model="folder")


def test_packed_weights_are_other_work(run, tmp_path, monkeypatch):
    """They are rounded otherwise, and another measurement may decide otherwise."""
    monkeypatch.setattr(pack, "packing_speedup", lambda: 2.0)
    run(code=130, batches=2)
    monkeypatch.setattr(pack, "packing_speedup", lambda: 1.0)
    assert "difference in: packed_weights." in run("--resume", code=2)
    monkeypatch.setattr(pack, "packing_speedup", lambda: 3.0)
    assert "done before" in run("--resume")


@pytest.mark.parametrize(("options", "expected"), [([], "1234.5"), (["--dtype", "int8"], "1.0")])
def test_other_processes_pack_weights_as_this_one(monkeypatch, options, expected):
    monkeypatch.setattr(_translating, "packing_speedup", lambda: 1234.5)
    work = _translating.Work(translate._parser().parse_args(["model.pt", *options]), "cpu")
    code = (
        "import pickle, sys; from posnet_fairseq.inference.packing import pack; pack._seconds = lambda *_: 1.0; "
        "pickle.load(sys.stdin.buffer); print(pack.packing_speedup())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(work), capture_output=True, check=True)
    assert done.stdout.decode().strip() == expected


@pytest.mark.thorough  # 20 s: starts processes
def test_processes_go_on_with_what_one_did(run, whole, tmp_path):
    run(code=130, batches=1)
    assert "1 of 7 sentences were done before" in run("--processes", "2")
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.thorough  # 20 s: starts a process; quick: an interrupt after any batch, a file cut at any byte
def test_killed(model, run, whole, tmp_path):
    code = (
        "from posnet_fairseq.cli import translate; from posnet_fairseq.inference.packing import pack; "
        f"pack.assume_packing_speedup({pack.packing_speedup()}); translate.main()"  # as measured here
    )
    command = [sys.executable, "-c", code, model, *OPTIONS]
    (tmp_path / "long").write_text("".join(f"{line}\n" for line in SOURCES * 40))
    run("--input", "long", "--output", "expected")
    process = subprocess.Popen(
        [*command, "--input", "long", "--output", "out"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    partial = tmp_path / "out.partial"
    commands.kill_when(process, lambda: partial.exists() and partial.read_bytes().count(b"\n") > 3)
    assert process.returncode == -signal.SIGKILL
    assert "of 280 sentences were done before" in run("--input", "long", "--resume")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "expected").read_bytes()


def test_work_goes_on_where_nothing_can_be_kept(run, whole, tmp_path, monkeypatch):
    run("--output", "y" * 250)
    assert (tmp_path / ("y" * 250)).read_bytes() == whole
    assert "of a name that is not too long" in run("--output", "y" * 250, "--resume", code=2)

    def full(*_):
        raise OSError(28, "No space left on device")

    run(code=130, batches=1)
    monkeypatch.setattr(Journal, "append", full)
    assert run().count("out.partial cannot be written (No space left on device)") == 1
    assert (tmp_path / "out").read_bytes() == whole
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--output", "-", "--resume"], "--resume goes on with a file: give one by --output"),
        (["--output", "/dev/null", "--resume"], "--resume goes on with a file"),
        (["--resume", "--stream"], "not allowed with argument"),
        (["--output", "mine"], "mine.partial is there, and posnet did not write it. Move it"),
        (["--input", "mine.partial", "--output", "mine"], "same file as mine.partial, which would be lost"),
    ],
)
def test_refused(run, tmp_path, options, says):
    (tmp_path / "mine.partial").write_text("mine\n")
    assert says in run(*options, code=2)
    assert (tmp_path / "mine.partial").read_text() == "mine\n"
