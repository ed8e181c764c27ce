"""The options of the search in posnet-translate, the lines that it reads and prints, and batches of them."""

import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from posnet_fairseq import api
from posnet_fairseq.cli import translate
from posnet_fairseq.inference import parallel_search, translating
from posnet_fairseq.inference.options import LoadOptions
from posnet_fairseq.inference.parallel_search import SearchOnGPU, processes_and_threads, timed_search
from posnet_fairseq.inference.search.search_settings import SearchSettings
from posnet_fairseq.inference.searchable import SearchableModel
from posnet_fairseq.inference.translator import Batch, Translator, batches_by_length
from posnet_fairseq.shared.progress import Bar
from support.commands import python as in_python
from support.commands import refused
from support.markup import sgml
from support.signals import PATIENCE

LINES = ["w1 w2 w3 w10", "", "w11", "w4 w5 w6"]
SETTINGS = ["--beam", "3", "--max-len-b", "6"]


@pytest.fixture
def translated(small_model, tmp_path):
    """A function: the lines that posnet-translate prints."""
    (tmp_path / "in").write_text("".join(line + "\n" for line in LINES))

    def run(*options):
        paths = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
        translate.main([str(small_model), "--pretokenized", *paths, *SETTINGS, *options])
        return (tmp_path / "out").read_text().split("\n")[:-1]

    return run


@pytest.fixture
def python(small_model):
    """A function: the translations in Python."""
    loaded = api.load(small_model, pretokenized=True)
    return lambda **options: loaded.translate(LINES, beam=3, max_len_b=6, nbest=3, **options)


def test_nbest(translated, python):
    printed = translated("--nbest", "2")
    expected = [(n, each.text, each.score) for n, found in enumerate(python()) for each in found[:2]]
    assert len(printed) == 7  # one of the blank line
    for line, (number, text, score) in zip(printed, expected, strict=True):
        found_number, found_text, found_score = line.split(" ||| ")
        assert (int(found_number), found_text) == (number, text)
        assert float(found_score) == pytest.approx(score, abs=1e-5)


def test_alignments(translated, python):
    printed = translated("--print-alignment")
    assert printed[1] == " ||| "
    for line, source, (best, *_) in zip(printed, LINES, python(attention=True), strict=True):
        text, pairs = line.split(" ||| ")
        assert text == best.text
        found = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        assert [target for _, target in found] == list(range(len(text.split())))
        if source:
            # The end symbol is no word to align to.
            assert [source for source, _ in found] == best.attention[:-1, :-1].argmax(dim=1).tolist()
    listed = translated("--nbest", "1", "--print-alignment")
    assert listed[0].split(" ||| ")[1::2] == printed[0].split(" ||| ")


def test_device(translated, monkeypatch, capsys):
    assert translated("--device", "cpu") == translated("--cpu") == translated()
    for given, sentence in (
        ("gpu", "argument --device: 'gpu': give cpu, cuda, or one of several GPUs, such as cuda:1."),
        ("cuda:77", "--device cuda:77 cannot be used: "),
    ):
        assert sentence in refused(capsys, lambda words: translated(*words), "--device", given)
    monkeypatch.setattr(translating, "check_device", lambda _: None)
    said = refused(capsys, lambda words: translated(*words), "--device", "cuda:1", "--processes", "2")
    assert "--processes 2: --device cuda:1 is one GPU. Give at most 1, or --device cpu." in said


def test_processes_find_the_same(translated):
    options = ["--nbest", "3", "--print-alignment", "--max-tokens", "5"]
    assert translated(*options, "--processes", "2") == translated(*options, "--processes", "1")


@pytest.fixture
def searches(monkeypatch):
    """Processes of searches, how they are started, and threads of each, with 7 threads; this process does the work."""
    used = []

    def in_order(find, batches, processes, start, _):
        used.append((processes, start))
        for batch in batches:
            yield find(batch)
            used.append(torch.get_num_threads())

    monkeypatch.setattr(parallel_search, "in_order", in_order)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(7)
    yield used
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "omp_threads", "processes", "threads"),
    [
        ("--max-tokens 5", None, 3, 1),  # for each batch, of 3
        ("--max-tokens 5", "7", 3, 1),
        ("", None, 1, 7),  # one batch
        ("--processes 2", None, 2, 3),
        ("--processes 2", "7", 2, 7),
        ("--processes 10", None, 10, 1),
    ],
)
def test_processes_and_threads_on_cpus(translated, monkeypatch, searches, options, omp_threads, processes, threads):
    if omp_threads:
        monkeypatch.setenv("OMP_NUM_THREADS", omp_threads)
    translated(*options.split())
    assert searches[0] == (processes, "fork")
    assert set(searches[1:]) == {threads}


def test_pipes_and_streams_are_translated_by_one_process(small_model, tmp_path, searches, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for more in ([], ["--stream"]):
        with ThreadPoolExecutor(1) as writer:
            writer.submit(pipe.write_text, "".join(f"{line}\n" for line in LINES))
            arguments = [str(small_model), "--pretokenized", *SETTINGS, "--max-tokens", "5", "--input", str(pipe)]
            translate.main([*arguments, *more])
        assert len(capsys.readouterr().out.splitlines()) == len(LINES)
        assert searches[0] == (1, "fork")
        searches.clear()
    assert processes_and_threads(None, __file__, 3) == (3, 1)
    assert processes_and_threads(None, __file__, 1000) == (7, 1)


def test_a_pipe_ends_though_there_is_nothing_to_write(small_model, tmp_path):
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    program = "from posnet_fairseq.cli import translate; translate.main()"
    files = ["--input", str(tmp_path / "empty"), "--output", str(tmp_path / "pipe")]
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        in_python(program, small_model, "--pretokenized", *SETTINGS, *files, check=True)
        try:
            assert reader.communicate(timeout=PATIENCE)[0] == b""
        finally:
            reader.kill()


def test_input_that_is_standard_output_is_refused(small_model, tmp_path):
    """Its end would never be reached."""
    text = tmp_path / "text"
    text.write_text("a\n")
    with open(text, "a") as out:
        program = "from posnet_fairseq.cli import translate; translate.main()"
        command = [sys.executable, "-c", program, str(small_model), "--input", str(text)]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert f"standard output: /dev/stdout is the same file as {text}, which would be lost." in done.stderr
    assert text.read_text() == "a\n"


MANY_SOURCES = """
import resource
import torch
from posnet_fairseq.inference.translator import Batch
from posnet_fairseq.shared.processes import in_order

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
tokens = [torch.tensor([number, 2]) for number in range(50)]
batches = [Batch(tokens), Batch(tokens, tokens)] * 3
print(list(in_order(lambda batch: batch.sources[-1].tolist(), batches, 2)))
"""


def test_sources_are_no_open_files_of_processes():
    done = in_python(MANY_SOURCES)
    assert done.stdout == f"{[[49, 2]] * 6}\n", done.stderr


def test_seconds_of_processes_are_those_from_the_first_search_to_the_last(translated, monkeypatch, capsys):
    """Also if a process on a GPU begins late, since it loads the model: its batch is the first."""
    times = iter([(11.0, 13.0), (10.0, 12.0), (15.0, 16.0)])
    monkeypatch.setattr(translating, "timed_search", lambda *work: (timed_search(*work)[0], *next(times)))
    monkeypatch.setattr(parallel_search, "in_order", lambda find, batches, *_: map(find, batches))
    translated("--max-tokens", "5", "--processes", "2")
    assert "3 sentences in 6.0 s, 0.5 sentences and" in capsys.readouterr().err


def test_progress_is_that_of_batches(translated, monkeypatch):
    done = []
    monkeypatch.setattr(Bar, "move_to", lambda bar, lines: setattr(bar, "done", lines) or done.append(lines))
    translated("--max-tokens", "5")
    assert done == [1, 2, 3]


def test_processes_on_gpus_load_the_models_on_their_own(small_model, monkeypatch, searches):
    """As if this process were the first of several, whose GPU is a CPU here."""
    devices = []

    def loaded(paths, load):
        devices.append((load.device, torch.get_num_threads()))
        return SearchableModel(paths, replace(load, device="cpu"))

    here = SearchableModel([str(small_model)], LoadOptions(pretokenized=True))
    arguments = SearchSettings(beam=3, max_len_b=6), 3, True, False
    batch = Batch([here.translator(*arguments).encode(line) for line in LINES if line])
    load = replace(here.options, device="cuda")
    elsewhere = pickle.loads(pickle.dumps(SearchOnGPU(SearchableModel, [str(small_model)], load, arguments, 3)))
    elsewhere.kind = loaded
    for each in (Batch([]), batch, batch):
        assert elsewhere(each)[0] == timed_search(here.translator(*arguments), None, each)[0]
    assert devices == [("cuda:0", 3)]


@pytest.mark.thorough  # 2 s
def test_only_the_processes_that_translate_need_a_device_for_the_precision(translated, tmp_path, monkeypatch):
    """As with two GPUs, and nothing to translate: what is refused on a CPU is not refused in this process."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    (tmp_path / "in").write_text("\n")
    assert translated("--processes", "2", "--dtype", "bf16") == [""]


def test_beginnings(translated, tmp_path):
    prefixes = ["w7 w8", "w9", "", "w3"]
    (tmp_path / "prefixes").write_text("".join(prefix + "\n" for prefix in prefixes))
    found = translated("--prefix", str(tmp_path / "prefixes"), "--max-tokens", "5")
    assert found[0].startswith("w7 w8 ")
    assert (found[1], found[2]) == ("", translated()[2])
    assert found[3].startswith("w3 ")


def test_a_text_begins_all_translations(translated, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        translated("--prefix", "w7 \udcff")
    assert "--prefix has half of a surrogate pair" in capsys.readouterr().err
    found = translated("--prefix", "w7 w8")
    assert "--prefix: there is no file w7 w8, so every translation begins with this text" in capsys.readouterr().err
    assert [line.startswith("w7 w8 ") for line in found] == [True, False, True, True]  # one line is blank


def test_translations_contain_terms(translated, tmp_path, capsys):
    (tmp_path / "terms").write_text("w2 w3\tw7\nw3\tw9\nw5\tw8 w7\n")
    (tmp_path / "wanted").write_text("w7\nw9\n\nw8 w7\n")
    usual = translated("--nbest", "2", "--json")
    capsys.readouterr()
    found = translated("--nbest", "2", "--json", "--terms", str(tmp_path / "terms"), "--processes", "2")
    assert "posnet-translate: 0 of 2 terms not met\n" in capsys.readouterr().err
    numbered = [json.loads(line) for line in found]
    assert {each["line"]: each["unmet"] for each in numbered} == {line: [] for line in range(4)}
    assert all("w7" in each["words"] for each in numbered if each["line"] == 0)
    assert all("w8 w7" in each["text"] for each in numbered if each["line"] == 3)
    free = [each["text"] for each in map(json.loads, usual) if each["line"] in (1, 2)]
    assert free == [each["text"] for each in numbered if each["line"] in (1, 2)]
    same = translated("--nbest", "2", "--json", "--constraints", str(tmp_path / "wanted"))
    assert "1 of 3 constraints not met" in capsys.readouterr().err  # that of the blank line
    assert [each["text"] for each in map(json.loads, same)] == [each["text"] for each in numbered]


def test_settings_reach_the_search(translated):
    usual = translated()
    longer = translated("--min-len", "6")
    assert all(len(line.split()) == 6 for line in longer if line)
    for options in (["--temperature", "9", "--lenpen", "3"], ["--max-len-b", "2"], ["--unkpen", "-9"]):
        assert translated(*options) != usual
    assert any("<unk>" in line for line in translated("--unkpen", "-9"))
    unrepeated = [line.split() for line in translated("--no-repeat-ngram-size", "1", "--min-len", "6")]
    assert all(len(set(words)) == len(words) for words in unrepeated)
    assert any(len(set(line.split())) < 6 for line in longer if line)


def test_a_batch_without_translations_is_found_before_the_first(translated, tmp_path, monkeypatch, capsys):
    """Batches of a line each, of which the longest line comes first and has a short prefix."""
    (tmp_path / "prefixes").write_text("w1\n\nw1 w2 w3 w4 w5 w6 w7\n\n")
    monkeypatch.setattr(Translator, "translate", lambda self, batch: pytest.fail("a batch is translated"))
    words = ("--prefix", tmp_path / "prefixes", "--max-tokens", 1)
    said = refused(capsys, lambda words: translated(*words), *words)
    assert "a beginning of 7 tokens is given, and the translations of this batch end after 6" in said


@pytest.mark.parametrize("max_tokens", [1, 10, 50, 10**6])
def test_batches_hold_every_index_once_and_few_tokens(max_tokens):
    generator = random.Random(1)
    lengths = [generator.randint(1, 30) for _ in range(200)]
    batches = batches_by_length(lengths, max_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= max_tokens


@pytest.mark.parametrize("pretokenized", [True, False])
def test_the_text_in_compressed_sgml_is_translated(small_model, tmp_path, capsys, pretokenized):
    merges = tmp_path / "codes"
    merges.write_text("#version: 0.2\nw 1</w>\n")
    options = ["--pretokenized"] if pretokenized else ["--bpe-codes", str(merges)]
    lines = ["w1 w2", "w3@@ w4", "w5"]
    (tmp_path / "plain").write_text("\n".join(lines))
    (tmp_path / "sgml").write_bytes(gzip.compress("\n".join(sgml(lines, "srcset", "")).encode()))
    said = []
    for name in ("plain", "sgml"):
        translate.main(
            [str(small_model), *options, "--cpu", "--beam", "1", "--max-len-b", "4", "--input", str(tmp_path / name)]
        )
        said.append(capsys.readouterr())
    assert said[0].out == said[1].out != ""
    assert ("has subword marks (@@ or ▁) and is split again" in said[1].err) == (not pretokenized)
