"""Settings of runs: one declaration for flags, YAML files and environment variables."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from posnet_fairseq.cli.run import _set_up_processes, find_target, main
from posnet_fairseq.runs.compare import ComparisonSettings
from posnet_fairseq.runs.language_models import LanguageModelSettings
from posnet_fairseq.runs.quickstart import QuickstartSettings
from posnet_fairseq.runs.run_settings import STAGES, RunSettings, hyperparameters
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.transformer.sizes import SIZES
from support.commands import ROOT, fails


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty working directory, and no variables from outside."""
    for kind in (RunSettings, ComparisonSettings, QuickstartSettings, LanguageModelSettings):
        for name in kind.environment_names():
            monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("POSNET_RECIPE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*words, target="wmt14.en-de"):
    settings, _, description, given = find_target(target)
    return settings.read(target, words, description, given)


def test_hyperparameters_are_those_of_the_size_and_flags_win():
    found = read("--size", "big", "--lr", "1e-3")
    assert (found.lr, found.tokens, found.average) == ("1e-3", 27200, 20)
    assert read().lr == "7e-4"  # as it is written, not 0.0007
    assert (read().size, read(target="iwslt14.de-en").size) == ("base", "iwslt")


def test_every_size_has_every_hyperparameter():
    names = {name for name in RunSettings.fields() if name in hyperparameters("tiny")}
    assert all(set(hyperparameters(size)) - {"patience"} == names for size in SIZES)  # patience has a default


def test_every_hyperparameter_has_a_remark():
    lines = (ROOT / "recipes/hyperparameters.yaml").read_text().splitlines()
    assert all("#" in line for line in lines if line and not line.endswith(":"))


def test_stages_and_flags_may_be_mixed():
    found = read("score", "--mixer", "shaw", "--tensorboard", "train", "--options=--shaw-values")
    assert (found.stages, found.mixer, found.tensorboard) == (("train", "score"), "shaw", True)
    assert found.options == "--shaw-values"
    assert read().stages == read("train", "all").stages == STAGES


def test_file_has_the_settings_that_no_flag_gives(folder):
    (folder / "run.yaml").write_text(
        "size: tiny\nmax-tokens: 600\nlr: 1e-3\nmetrics: [bleu, ter]\nstages: [train, score]\ntensorboard: false\n"
    )
    found = read("--config", "run.yaml", "--lr", "3e-3")
    assert (found.size, found.max_tokens, found.lr, found.metrics) == ("tiny", 600, "3e-3", "bleu ter")
    assert (found.stages, found.tensorboard, found.beam) == (("train", "score"), False, 5)


@pytest.mark.parametrize("word", ["off", "no", "False", "0"])
def test_a_switch_that_is_off_in_a_file_is_off(folder, word):
    (folder / "run.yaml").write_text(f"dry_run: {word}\n")
    assert not read("--config", "run.yaml").dry_run


def test_variables_are_read_by_recipes_only(monkeypatch, folder):
    monkeypatch.setenv("SIZE", "tiny")
    monkeypatch.setenv("DATA", "corpus")
    assert read().size == "base"
    (folder / "recipes").mkdir()
    monkeypatch.setenv("POSNET_RECIPE", str(folder / "recipes/corpus.sh"))
    found = read(target="corpus")
    assert (found.size, found.data_folder, found.runs_folder) == ("tiny", Path("corpus"), Path("runs/corpus"))
    assert read("--size", "big").size == "big"
    monkeypatch.setenv("SIZE", "tny")
    with pytest.raises(UsageError, match=f"^SIZE=tny: choose one of {' '.join(SIZES)}\\. Did you mean tiny\\?"):
        read()


def test_the_name_that_wsl_gives_every_shell_is_no_runs(monkeypatch, folder):
    monkeypatch.setenv("POSNET_RECIPE", str(folder / "recipes/corpus.sh"))
    monkeypatch.setenv("WSL_DISTRO_NAME", "Ubuntu")
    monkeypatch.setenv("NAME", platform.node())
    assert read().name is None
    monkeypatch.setenv("NAME", "mine")
    assert read().name == "mine"


def test_the_programs_of_this_environment_stand_first(monkeypatch):
    monkeypatch.setenv("PATH", f"/usr/bin:{Path(sys.executable).parent}")
    monkeypatch.setattr("os.environ", dict(os.environ))
    _set_up_processes()
    assert os.environ["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_folders_of_a_recipe_lie_in_its_checkout_but_those_given_where_the_caller_is(monkeypatch, folder):
    (folder / "checkout/recipes").mkdir(parents=True)
    monkeypatch.setenv("POSNET_RECIPE", str(folder / "checkout/recipes/wmt14.en-de.sh"))
    assert read().run == Path("runs/wmt14.en-de/rposnet_base_s1")
    monkeypatch.setenv("RUNS", "mine")
    assert read().run == folder / "mine/wmt14.en-de/rposnet_base_s1"


def test_another_posnet_run_is_told_the_same():
    words = ["--size=tiny", "--options=--gate none", "--node-rank=0", "--nodes=2", "--tensorboard", "--data=a b"]
    found = read(*words, "--adam-betas", "(0.9, 0.98)")
    assert read(*found.arguments(), target="corpus") == found


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["wmt14.ende"], "wmt14.ende: there is no such target. Choose one of .* Did you mean wmt14.en-de?"),
        (["comprae"], "Did you mean compare?"),
        (["wmt14.en-de", "--mixr", "rposnet"], "--mixr: there is no such option; .* Did you mean --mixer?"),
        (["wmt14.en-de", "--mixr=rposnet"], "--mixr: there is no such option"),
        (["wmt14.en-de", "--mixer", "rposnt"], "--mixer rposnt: choose one of .* Did you mean rposnet?"),
        (["wmt14.en-de", "--size", "smal"], "--size smal: choose one of tiny multi30k iwslt base big"),
        (["wmt14.en-de", "trian"], "trian: choose from prepare train .* Did you mean train?"),
        (["wmt14.en-de", "--seed", "0"], "--seed 0: give a whole number, 1 to 9999999"),
        (["corpus"], "no data is named: give --dataset quickstart.en-de, or --data FOLDER"),
        (["corpus", "--dataset", "wmt14.de-en"], "--dataset wmt14.de-en: choose one of .* Did you mean iwslt14.de-en?"),
        (["quickstart", "fast"], "fast: quickstart takes no arguments, only settings"),
        (["quickstart", "--mixers", "rposnet,shw"], "--mixers shw: choose one of .* Did you mean shaw?"),
        (["lm", "a.txt", "b.txt"], "2 files were given"),
        (["compare", "tabel-4", "--dataset", "wmt14.en-de"], "tabel-4: there is no such file.* Did you mean table-4?"),
        (["wmt14.en-de", "--config", "x.yaml"], "x.yaml: No such file or directory"),
        (["wmt14.en-de", "--gpus", "1", "--cpus", "1"], "--gpus 1 and --cpus 1: give one of them"),
        (["wmt14.en-de", "--updates", "3000"], "--average 7: 3000 .* Set a smaller --average or --interval"),
        (["wmt14.en-de", "--options=--seed 3"], r"--seed has an option of its own \(--mixer, --size"),
    ],
)  # fmt: skip
def test_misuse_is_one_sentence_that_speaks_of_flags(folder, capsys, words, sentence):
    line = fails(capsys, main, *words)
    assert re.search(sentence.replace("?", r"\?"), line), line
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mixr: shaw", "run.yaml: mixr: there is no such setting. Did you mean mixer?"),
        ("size: tny", "Did you mean tiny?"),
        ("- a", "run.yaml has no settings"),
        ("", "run.yaml has no settings"),
        ("a: [", "run.yaml is not YAML in line 1"),
        ("size: tiny\nseed: 2\nsize: big", "run.yaml is not YAML in line 3: 'size' is there twice. Correct it."),
        ("max-tokens: 600\nmax_tokens: 700", "run.yaml: max_tokens: this setting is there twice. Leave one out."),
        ("dry_run: maybe", "--dry-run maybe: give one of 1 true yes on 0 false no off."),
        ("size: {a: b}", "run.yaml: size: give one value"),
        ("seed: [1, [2]]", "run.yaml: seed: give one value"),
        ("size: !!python/object/apply:os.system ['touch x']", "--size touch x: choose one of"),
    ],
)
def test_bad_file_is_one_sentence(folder, text, sentence):
    (folder / "run.yaml").write_text(text)
    with pytest.raises(UsageError) as raised:
        read("--config", "run.yaml")
    assert sentence in str(raised.value)
    assert os.listdir(folder) == ["run.yaml"]


@pytest.mark.parametrize("target", ["wmt14.en-de", "corpus", "compare", "quickstart", "lm"])
def test_help_has_every_setting(capsys, target):
    with pytest.raises(SystemExit):
        main([target, "--help"])
    shown = capsys.readouterr().out
    settings, *_ = find_target(target)
    assert all(f"--{name.replace('_', '-')}" in shown for name in settings.environment_names().values())


def test_help_has_every_target(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert all(target in shown for target in ("wmt18.en-zh", "corpus", "compare", "quickstart", "lm"))


def test_settings_are_read_without_torch_and_fairseq():
    """Whatever is mistyped is said at once."""
    script = "import sys; from posnet_fairseq.cli.run import TARGETS, find_target; list(map(find_target, TARGETS)); "
    script += "sys.exit(' '.join({'torch', 'fairseq', 'omegaconf', 'matplotlib'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("\n", 1)


@pytest.mark.parametrize(
    ("target", "given", "meant"),
    [("quickstart", "SEED", "SEEDS"), ("quickstart", "UPDATE", "UPDATES"), ("compare", "SEED", "SEEDS"),
     ("corpus", "SEEDS", "SEED")],
)  # fmt: skip
def test_setting_of_another_recipe_is_not_passed_over(folder, monkeypatch, target, given, meant):
    settings, *_ = find_target(target)
    monkeypatch.setenv("POSNET_RECIPE", str(folder / "recipes" / f"{target}.sh"))
    monkeypatch.setenv("DATASET", "wmt14.en-de")
    monkeypatch.setenv(given, "2")
    with pytest.raises(UsageError, match=f"{given}=2: {target} has no such setting. Did you mean {meant}"):
        settings.read(target, [], "")


# Names of environment variables on desktops, in shells, containers, jobs of clusters and of CI.
USUAL = """
_ ACTIONS_RUNTIME_TOKEN BASH_ENV BUILD_ID BUILD_NUMBER BUILD_TAG BUILD_URL CDPATH CI CI_COMMIT_SHA CI_JOB_TOKEN
CI_NODE_INDEX CI_PIPELINE_ID CI_PROJECT_NAME CI_RUNNER_ID COLORTERM COLUMNS CONDA_DEFAULT_ENV CONDA_PREFIX CPU
CUDA_HOME CUDA_VISIBLE_DEVICES DATE DBUS_SESSION_BUS_ADDRESS DEBIAN_FRONTEND DESKTOP_SESSION DISPLAY EDITOR EUID
EXECUTOR_NUMBER GDMSESSION GITHUB_ACTION GITHUB_ACTIONS GITHUB_ENV GITHUB_JOB GITHUB_OUTPUT GITHUB_PATH GITHUB_REF
GITHUB_SHA GITHUB_TOKEN GITHUB_WORKSPACE GITLAB_CI GNOME_SHELL_SESSION_MODE GTK_MODULES HF_HOME HF_TOKEN HISTSIZE HOME
HOST HOSTNAME HOSTTYPE http_proxy https_proxy IFS IM_CONFIG_PHASE ImageOS INVOCATION_ID JENKINS_URL JOB JOB_NAME
JOB_URL JOURNAL_STREAM KUBERNETES_PORT KUBERNETES_SERVICE_HOST LANG LANGUAGE LC_ALL LC_TIME LD_LIBRARY_PATH LESS
LESSOPEN LINES LOCAL_RANK LOGNAME LS_COLORS MACHTYPE MAIL MANPATH MKL_NUM_THREADS MORE no_proxy NODE NODE_ENV
NODE_LABELS NODE_NAME OLDPWD OMP_NUM_THREADS OSTYPE PAGER PATH PBS_JOBID PBS_NODEFILE POSNET_KERNELS PROFILEREAD PS1
PWD PYENV_ROOT PYTHONPATH PYTHONUNBUFFERED QT_ACCESSIBILITY RANK RUNNER_ARCH RUNNER_NAME RUNNER_OS RUNNER_TEMP
RUNNER_TOOL_CACHE SESSION_MANAGER SHELL SHLVL SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NUM_NODES SLURM_NODEID
SLURM_NTASKS SLURM_PROCID SLURM_SUBMIT_DIR SSH_AGENT_PID SSH_AUTH_SOCK SSH_CLIENT SSH_TTY STAGE_NAME TERM TMPDIR TMUX
TOKEN TOKENIZERS_PARALLELISM TZ UID UNAME USER USERNAME VIRTUAL_ENV VISUAL WANDB_API_KEY WAYLAND_DISPLAY WINDOWID
WORKSPACE WORLD_SIZE WSL_DISTRO_NAME XAUTHORITY XDG_CACHE_HOME XDG_DATA_DIRS XDG_RUNTIME_DIR XDG_SESSION_TYPE
XMODIFIERS
""".split()


@pytest.mark.parametrize("target", ["corpus", "compare", "quickstart", "lm"])
def test_usual_environment_is_taken_for_no_misspelt_setting(folder, monkeypatch, target):
    settings, *_ = find_target(target)
    monkeypatch.setenv("POSNET_RECIPE", str(folder / "recipes" / f"{target}.sh"))
    monkeypatch.setenv("DATASET", "wmt14.en-de")
    for name in USUAL:
        monkeypatch.setenv(name, "1")
    settings.read(target, [], "")
    for variable in {*settings.variables()} - {"LR"}:  # too short to be misspelt
        monkeypatch.setenv(f"{variable}_", "1")
        with pytest.raises(UsageError, match=f"Did you mean {variable}"):
            settings.read(target, [], "")
        monkeypatch.delenv(f"{variable}_")
