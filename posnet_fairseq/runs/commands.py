"""The commands of a run's stages, and of trainings on several processes or machines."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import posnet_fairseq
from posnet_fairseq.runs.batches import CRITERION, batch_tokens, shares_embeddings
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import RunSettings, TranslationData, short
from posnet_fairseq.runs.settings import given, refuse
from posnet_fairseq.runs.training import Training
from posnet_fairseq.shared.progress import ProgressReporter

USER_DIR = Path(posnet_fairseq.__file__).parent
RANK = Path(__file__).parent / "distributed" / "rank.py"


def training(settings: RunSettings, data: TranslationData, device: Device, report: ProgressReporter) -> Training:
    """Return the training of a run, whose batches are said in a report."""
    world = device.processes * settings.nodes
    # The fewest batches of at most max_tokens that hold an update. The tokens that batches of an earlier attempt had
    # give the number of batches that it had.
    most = batch_tokens(settings, data, device, world, report)
    batches = settings.tokens // ((most + 1) * world) + 1
    tokens = settings.tokens // (batches * world)
    if tokens < settings.max_positions:
        refuse(
            "tokens",
            settings.tokens,
            f"with {given('max_tokens', most)} an update of {world} processes has batches of {tokens} tokens, and a "
            f"sentence may have {given('max_positions', settings.max_positions)}. Take fewer processes (--gpus, "
            "--cpus, --nodes), or larger batches.",
        )
    report.say(
        f"{tokens * batches * world} tokens per update: {world} {'process' if world == 1 else 'processes'} × "
        f"--update-freq {batches} × --max-tokens {tokens}"
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
        *(("--tensorboard-logdir", settings.run / "tensorboard") if settings.tensorboard else ()),
        *_placed(device, world),
        *settings.options.split(),
    ]
    launch = ["fairseq-train"] if world == 1 else _launcher(settings, device.processes)
    return Training(launch, list(map(str, arguments)), world)


def tried(settings: RunSettings) -> list[str]:
    """Return arguments of fairseq-train that tell whether it understands the options of a run."""
    return _text(settings.data_folder, "--arch", settings.arch, *settings.options.split(), *_plugin(settings))


def _placed(device: Device, world: int) -> list[str]:
    """Return options of fairseq-train about where it computes."""
    placed = _cpu(device) + ([] if device.precision == "fp32" else [f"--{device.precision}"])
    if world == 1:
        return [*placed, "--distributed-world-size", "1"]
    # fairseq has legacy_ddp for CPUs, too: one code path on all machines.
    placed += ["--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    return [*placed, "--distributed-backend", "gloo"] if device.kind == "cpu" else placed


def _cpu(device: Device) -> list[str]:
    return ["--cpu"] if device.kind == "cpu" else []


def _launcher(settings: RunSettings, processes: int) -> list[str]:
    """Return the command that starts a training on several processes."""
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
        flags = "--master-addr NAME_OF_THE_FIRST and --node-rank 0, 1, ...; under SLURM, recipes/slurm.sbatch does it"
        refuse("nodes", nodes, f"run the stage train on each machine, with {flags}.")
    return [*launch, str(short(RANK))]


def average(settings: RunSettings) -> list[str]:
    """Return the command that averages the checkpoints of the training."""
    averaged = ("--num", settings.average, "--out", settings.run / "averaged.pt")
    return _text("posnet-average", settings.run / "checkpoints", *averaged, *_plugin(settings))


def search(settings: RunSettings) -> list[str]:
    """Return the options of the search, which translate and which the averaged checkpoint records."""
    lengths = ("--max-len-a", settings.max_len_a, "--max-len-b", settings.max_len_b)
    return _text("--beam", settings.beam, "--lenpen", settings.lenpen, *lengths)


def precompute(settings: RunSettings) -> list[str]:
    """Return the command that stores the energies that depend on positions only."""
    made = ("--out", settings.run / "precomputed.pt", "--or-copy")
    return _text("posnet-precompute", settings.run / "averaged.pt", *made, *_plugin(settings))


def translate(
    settings: RunSettings, data: TranslationData, device: Device, test_set: str, output: str = "", *options: str
) -> list[str]:
    """Return the command that translates a test set into a file of the run's folder (default: named like it)."""
    return _text(
        *("posnet-translate", settings.run / "precomputed.pt", "--data", settings.data_folder),
        *("--input", settings.data_folder / f"{test_set}.{data.source}"),
        *("--output", settings.run / (output or f"{test_set}.{data.target}")),
        *search(settings),
        *("--on-long", "truncate", *_cpu(device)),
        *(("--processes", device.processes) if device.processes > 1 else ()),
        *(*options, *_plugin(settings)),
    )


def score(settings: RunSettings, data: TranslationData, device: Device, test_set: str, report: Path) -> list[str]:
    """Return the command that scores the translation of a test set, with a folder for its report."""
    return _text(
        *("posnet-score", "--source", settings.data_folder / f"{test_set}.{data.source}"),
        *("--reference", settings.data_folder / f"{test_set}.{data.target}"),
        *("--language-pair", f"{data.source}-{data.target}"),
        *("--system", f"{settings.system}={settings.run / f'{test_set}.{data.target}'}"),
        *("--metrics", settings.metrics, "--out", report, *_cpu(device), *(["--lowercase"] * data.lowercase)),
    )


def prepare(dataset: str, folder: Path, *options: str) -> Sequence[str]:
    """Return the command that makes a dataset."""
    return _text("posnet-prepare", dataset, *options, "--out", folder)


def _plugin(settings: RunSettings) -> list[Path | str]:
    """Return the options of posnet's commands that give them the user's own mixers."""
    return ["--user-dir", settings.user_dir] if settings.user_dir else []


def _text(*command: object) -> list[str]:
    return list(map(str, command))
