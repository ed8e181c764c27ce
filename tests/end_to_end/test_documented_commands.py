"""Runs every command in README.md, CONTRIBUTING.md and docs/*.md on small data, in the order of the documents."""

import re

import pytest

from support import documents
from support.commands import ROOT, program, run_program
from support.reader import PLACEHOLDERS, SMALLER, Reader, typed

COMMANDS = [command for path in documents.FILES for command in documents.commands(path)]

# What is not executed here, by a pattern of how it begins: why not, or the test that executes it.
EXCEPTIONS = {
    r"bash tests/run\.sh": "it is what runs this test",
    r"(READTHEDOCS=1 )?pip install ": "takes a network; recipes/lib/environment.sh installs the same "
    "before these tests run",
    r"\.venv/bin/pre-commit install$": "the hooks are the linter, which tests/run.sh runs",
    r"bash recipes/quickstart\.sh$": "trains for minutes on downloads; its parts: tests/data_prep/test_quickstart.py, "
    "tests/recipes/test_runs.py",
    r"posnet-prepare (debian|study)\.": "downloads with apt; tests/data_prep/test_debian.py has made-up indexes",
    r"posnet-prepare multi30k\.": "downloads; tests/data_prep/test_corpus.py::test_joined_sentences, of another corpus",
    r"posnet-prepare corpus .*--out data/(joint|single)": "reads what that downloads; tests/data_prep/test_corpus.py"
    "::test_several_target_languages, of another corpus",
    r"posnet-run (multi30k|corpus --data data/(joint|single))": "goes on with that; "
    "tests/recipes/test_shell.py::test_test_sets_of_several_directions",
    r"posnet-score --source data/multi30k": "goes on with that; "
    "tests/recipes/test_shell.py::test_test_sets_of_several_directions",
    r"posnet-(translate|export) runs/my-languages/": "posnet-run is only rehearsed; tests/inference/test_directions.py"
    "::test_a_language_of_several_is_chosen",
    r"python - my\.tsv ": "tests/data_prep/test_notes.py::test_the_documented_command_writes_a_plain_table",
    r"python serve\.py |curl ": "tests/docs/test_serving.py",
    r"posnet-rerank .*--utility comet": "downloads a model; tests/eval/test_rerank.py"
    "::test_an_interrupted_command_goes_on",
    r"posnet-score .*--metrics comet-kiwi": "downloads a model; tests/eval/test_models_in_score.py"
    "::test_estimates_without_a_reference",
    r"sbatch ": "needs SLURM; tests/recipes/test_shell.py::test_slurm_starts_the_training_on_every_machine",
    r"bash recipes/lm\.sh": "trains for minutes on downloads; its parts: tests/end_to_end/test_language_modeling.py",
    r"bash recipes/gpu_check\.sh": "tests/gpu/test_gpu_check.py::test_it_runs_to_its_end_on_the_simulated_device",
    r"pip wheel ": "tests/end_to_end/test_installed.py::test_wheel_and_sdist_have_all_files_of_the_packages",
    r"python -P posnet_fairseq/": "tests/fairseq_plugin/test_fairseq_options.py"
    "::test_commands_of_fairseq_start_in_the_form_of_python_314",
    r"posnet-mixers$": "tests/cli/test_mixers_command.py::test_tables_fit_a_terminal_and_a_pipe",
    r"posnet-bench translate ": "tests/cli/test_bench.py::test_whole_files_are_translated_by_every_engine",
    r"posnet-plot curves ": "tests/plots/test_plot_command.py::test_curves",
    r"posnet-plot compare ": "tests/plots/test_plot_command.py::test_compare",
    r"posnet-run (corpus|compare) .*--user-dir my_plugin": "tests/end_to_end/test_plugin.py::test_posnet_run_trains_and"
    "_compares_it",
    r"posnet-run tune ": "tests/recipes/test_tuning.py, with trainings that are made up",
    r"posnet-run study ": "tests/recipes/test_studies.py::test_a_run_leaves_its_result, of a small study",
    r"posnet-plot analog results/": "tests/analog/test_analog_command.py::test_committed_reports_are_drawn",
    r"posnet-run corpus --data data/study": "goes on with that; tests/recipes/test_init_checkpoint.py, of small models",
    r"posnet-analog runs/": "needs an hour of training; tests/analog/test_analog_command.py, of small models",
    r"posnet-plot study ": "tests/recipes/test_study_analysis.py::test_tables_and_pictures",
    r"mv checkpoints/model\.ckpt |python - <<'END' import json import torch": "tests/eval/test_comet.py"
    "::test_the_documented_command_makes_a_refused_checkpoint_plain",
}
# Parts of commands that the text mentions: their --help must know the options.
MENTIONS = {
    "posnet-average --beam 5",
    "posnet-prepare corpus",
    "posnet-plot compare",
    "posnet-plot curves",
    "posnet-plot gates",
    "posnet-plot study",
    "posnet-plot weights",
    "posnet-prepare text",
    "posnet-run compare",
    "posnet-run lm",
    "posnet-run quickstart",
    "posnet-run study",
    "posnet-run tune",
    "posnet-translate --dtype bf16",
    "posnet-translate --fast",
    "posnet-translate --processes 4",
    "posnet-translate --resume",
    "posnet-translate --stream",
}
# A program's name is a mention, too, if the program needs more than its name.
COMPLETE = {"posnet-doctor", "posnet-mixers"}


def one_line(command):
    """The command without assignments before it and comments after it."""
    return re.sub(r"""^([A-Z_]+=("[^"]*"|\S+) )+|\s+# .*""", "", " ".join(command.text.split()))


def is_mention(command):
    return command.text in MENTIONS or (len(command.text.split()) == 1 and command.text not in COMPLETE)


def is_exception(command):
    return any(re.match(pattern, one_line(command)) for pattern in EXCEPTIONS)


EXECUTED = [command for command in COMMANDS if not is_mention(command) and not is_exception(command)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        reader = Reader(tmp_path_factory.mktemp("reader"), patch)
        yield reader
        reader.close()


@pytest.mark.parametrize("number", range(len(EXECUTED)), ids=[f"{each.document}:{each.line}" for each in EXECUTED])
@pytest.mark.thorough  # 3 minutes; quick: every option that documents mention is known
def test_command_works(reader, number):
    """Commands run in the order of the documents, since they read files that earlier ones write."""
    reader.type(EXECUTED[number], before=EXECUTED[:number])


@pytest.mark.parametrize("mention", sorted({command.text for command in COMMANDS if is_mention(command)}))
def test_mention_is_of_a_command(monkeypatch, capsys, mention):
    words = mention.split()
    assert program(words[0]) is not None, f"`{mention}`: there is no such program"
    if len(words) > 1:
        command = [word for word in words[:2] if not word.startswith("-")]
        with pytest.raises(SystemExit) as stop:
            run_program(monkeypatch, *command, "--help")
        assert stop.value.code == 0, f"`{mention}`: there is no such command"
        known = capsys.readouterr().out
        unknown = [word for word in words if word.startswith("-") and not re.search(rf"{word}\b", known)]
        assert not unknown, f"`{mention}`: its --help does not know {unknown}"


def test_commands_stand_in_blocks_of_bash():
    """Commands elsewhere than in blocks of bash and code spans would not be tested."""
    for path in documents.FILES:
        text = path.read_text()
        others = [content for _, language, content in documents.blocks(text) if language != "bash"]
        lines = [line for content in others for line in content.split("\n")]
        lines += [line.strip() for line in documents.prose(text).split("\n") if line.startswith(" " * 4)]
        for line in lines:
            assert not documents.looks_like_a_command(line), f"{path.name}: {line}\nput it into a block of ```bash"


def test_tables_are_up_to_date():
    """Every exception, mention and placeholder occurs in a document, and tests that exceptions name exist."""
    texts = [one_line(command) for command in COMMANDS]
    stale = [pattern for pattern in EXCEPTIONS if not any(re.match(pattern, text) for text in texts)]
    stale += [text for text in MENTIONS | COMPLETE if text not in texts]
    words = [typed(command)[1] for command in EXECUTED]
    stale += [pattern for pattern in SMALLER if not any(re.match(pattern, " ".join(each)) for each in words)]
    stale += [word for word in PLACEHOLDERS if not any(word in command.words() for command in EXECUTED)]
    assert not stale, f"no documented command needs {stale}: take it out of its table"
    for path, _, function in re.findall(r"(tests/[\w/]+\.(?:py|sh))(::(\w+))?", " ".join(EXCEPTIONS.values())):
        assert (ROOT / path).is_file(), f"EXCEPTIONS names {path}, which is not there"
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path} has no {function}"
