"""The commands of a run's stages, and of trainings on several processes or machines."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import posnet_fairseq
from posnet_fairseq.runs.batches import CRITERION, batch_tokens, shares_embeddings
from posnet_fairseq.runs.dataset import TranslationData
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import RunSettings, short
from posnet_fairseq.runs.settings import given, refuse
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.progress import ProgressReporter

USER_DIR = Path(posnet_fairseq.__file__).parent
RANK = Path(__file__).parent / "distributed" / "rank.py"


@dataclass(frozen=True)
class Training:
    """A training.

    Attributes:
        launch: command in front of the arguments, which starts all processes.
    """

    launch: list[str]
    arguments: list[str]
    world: int

    @property
    def command(self) -> list[str]:
        """The whole command."""
        return [*self.launch, *self.arguments]


def training(settings: RunSettings, data: TranslationData, device: Device, report: ProgressReporter) -> Training:
    """Return the training of a run, whose batches are said in a report."""
    world = device.processes * settings.nodes
    # The fewest batches of at most max_tokens that hold an update. The tokens that batches of an earlier attempt had
    # give the number of batches that it had.
    most = batch_tokens(settings, data, device, world, report)
    batches = settings.tokens // ((most + 1) * world) + 1
    tokens = settings.tokens // (batches * world)
    if tokens < settings.max_positions:
        raise UsageError(
            f"{given('tokens', settings.tokens)} and {given('max_tokens', most)} make "
            f"batches of {tokens} tokens on {world} processes, and a sentence may have "
            f"{given('max_positions', settings.max_positions)}. Take fewer processes (--gpus, --cpus, --nodes), or "
            "larger batches."
        )
    report.say(
        f"{tokens * batches * world} tokens an update: processes × --update-freq × --max-tokens = "
        f"{world} × {batches} × {tokens}"
    )
    arguments = [
        *(settings.data_folder, "--user-dir", settings.user_dir or short(USER_DIR)),
        *("--arch", settings.arch, "--seed", settings.seed),
        "--share-all-embeddings" if shares_embeddings(settings, data) else "--share-decoder-input-output-embed",
        *("--criterion", CRITERION, "--label-smoothing", settings.label_smoothing),
        *("--best-checkpoint-metric", "ppl"),
        *("--optimizer", "fused_adam", "--adam-betas", settings.adam_betas, "--adam-eps", settings.adam_eps),
        *("--lr", settings.lr, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", settings.warmup),
        *("--max-update", settings.updates),
        *("--max-source-positions", settings.max_positions, "--max-target-positions", settings.max_positions),
        *("--skip-invalid-size-inputs-valid-test", "--required-batch-size-multiple", 1),
        *("--max-tokens", tokens, "--update-freq", batches),
        *("--save-interval-updates", settings.interval, "--no-epoch-checkpoints"),
        *("--save-dir", settings.run / "checkpoints"),
        *(("--patience", settings.patience) if settings.patience else ()),
        *(("--finetune-from-model", settings.init_from) if settings.init_from else ()),
        *("--log-format", "json", "--log-interval", -(-settings.interval // 10)),
        *_placed(settings, device, world),
        *settings.options.split(),
    ]
    launch = ["fairseq-train"] if world == 1 else _launcher(settings, device.processes)
    return Training(launch, list(map(str, arguments)), world)


def tried(settings: RunSettings) -> list[str]:
    """Return arguments of fairseq-train that tell whether it understands the options of a run."""
    arguments = (settings.data_folder, "--arch", settings.arch, *settings.options.split())
    return _text(*arguments, *_plugin(settings))


def _placed(settings: RunSettings, device: Device, world: int) -> list[str]:
    """Options of fairseq-train about where it computes."""
    placed = ["--cpu"] if device.kind == "cpu" else []
    if device.precision != "fp32":
        placed.append(f"--{device.precision}")
    if settings.tensorboard:
        placed += ["--tensorboard-logdir", str(settings.run / "tensorboard")]
    if world == 1:
        return [*placed, "--distributed-world-size", "1"]
    # fairseq has legacy_ddp for CPUs, too: one code path on all machines.
    placed += ["--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    return [*placed, "--distributed-backend", "gloo"] if device.kind == "cpu" else placed


def _launcher(settings: RunSettings, processes: int) -> list[str]:
    """The command that starts a training on several processes."""
    nodes, port, job = settings.nodes, settings.master_port, os.environ.get("SLURM_JOB_ID")
    launch = ["torchrun", "--nnodes", str(nodes), "--nproc-per-node", str(processes), "--max-restarts", "0"]
    if nodes == 1:
        launch += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    elif job:
        if settings.node_rank is not None:
            refuse("node_rank", settings.node_rank, "SLURM counts the machines by itself. Leave it out.")
        hosts = ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]]
        first = subprocess.run(hosts, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0]
        srun = ["srun", "--nodes", str(nodes), "--ntasks", str(nodes), "--ntasks-per-node", "1"]
        launch = [*srun, "--kill-on-bad-exit=1", *launch, "--rdzv-backend", "c10d"]
        launch += ["--rdzv-id", job, "--rdzv-endpoint", f"{first}:{port}"]
    elif settings.master_addr and settings.node_rank is not None:
        launch += ["--node-rank", str(settings.node_rank), "--master-addr", settings.master_addr]
        launch += ["--master-port", str(port)]
    else:
        first, rank = given("master_addr", "NAME_OF_THE_FIRST"), given("node_rank", 0)
        refuse(
            "nodes",
            nodes,
            f"run the stage train on each machine, with {first} and {rank}, 1, ...; under SLURM, recipes/slurm.sbatch "
            "does it.",
        )
    return [*launch, str(short(RANK))]


def average(settings: RunSettings) -> list[str]:
    """The command that averages the checkpoints of the training."""
    run = settings.run
    averaged = ("--num", settings.average, "--out", run / "averaged.pt")
    return _text("posnet-average", run / "checkpoints", *averaged, *_plugin(settings))


def search(settings: RunSettings) -> list[str]:
    """The options of the search, which translate and which the averaged checkpoint records."""
    return _text(
        *("--beam", settings.beam, "--lenpen", settings.lenpen),
        *("--max-len-a", settings.max_len_a, "--max-len-b", settings.max_len_b),
    )


def precompute(settings: RunSettings) -> list[str]:
    """The command that stores the energies that depend on positions only."""
    run = settings.run
    made = ("--out", run / "precomputed.pt", "--or-copy")
    return _text("posnet-precompute", run / "averaged.pt", *made, *_plugin(settings))


def translate(
    settings: RunSettings, data: TranslationData, device: Device, test_set: str, output: str = "", *options: str
) -> list[str]:
    """The command that translates a test set.

    Args:
        output: file in the run's folder (default: named like the test set).
    """
    run = settings.run
    placed = ["--cpu"] if device.kind == "cpu" else []
    if device.processes > 1:
        placed += ["--processes", str(device.processes)]
    return _text(
        *("posnet-translate", run / "precomputed.pt", "--data", settings.data_folder),
        *("--input", settings.data_folder / f"{test_set}.{data.source}"),
        *("--output", run / (output or f"{test_set}.{data.target}")),
        *search(settings),
        *("--on-long", "truncate", *placed, *options, *_plugin(settings)),
    )


def score(settings: RunSettings, data: TranslationData, device: Device, test_set: str, report: Path) -> list[str]:
    """The command that scores the translation of a test set, with a folder for its report."""
    folder, run = settings.data_folder, settings.run
    placed = ["--cpu"] if device.kind == "cpu" else []
    return _text(
        *("posnet-score", "--source", folder / f"{test_set}.{data.source}"),
        *("--reference", folder / f"{test_set}.{data.target}"),
        *("--language-pair", f"{data.source}-{data.target}"),
        *("--system", f"{settings.system}={run / f'{test_set}.{data.target}'}"),
        *("--metrics", settings.metrics, "--out", report, *placed, *(["--lowercase"] * data.lowercase)),
    )


def _plugin(settings: RunSettings) -> list[Path | str]:
    """Return the options of posnet's commands that give them the user's own mixers."""
    return ["--user-dir", settings.user_dir] if settings.user_dir else []


def _text(*command: object) -> list[str]:
    return list(map(str, command))


def prepare(dataset: str, folder: Path, *options: str) -> Sequence[str]:
    """The command that makes a dataset."""
    return _text("posnet-prepare", dataset, *options, "--out", folder)
