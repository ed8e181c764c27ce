"""The command of a training, on one process or several, the tokens of its batches, and the preparation of its data."""

import json
import os
import subprocess
from pathlib import Path

import posnet_fairseq
from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import RunSettings, TranslationData, by_name, hyperparameters, short
from posnet_fairseq.runs.settings import refuse
from posnet_fairseq.runs.training import Training, value_of
from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import counted, option
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record
from posnet_fairseq.text.dictionary import dictionary_file
from posnet_fairseq.text.languages import common_bleu_tokenizer

USER_DIR = Path(posnet_fairseq.__file__).parent
RANK = Path(__file__).parent / "distributed" / "rank.py"
CRITERION = f"{PREFIX}label_smoothed_cross_entropy"  # unless the run's options name another
OPTIMIZER = "fused_adam"  # likewise
ADAMS = (OPTIMIZER, "adam", "cpu_adam")  # optimizers with Adam's options


def training(settings: RunSettings, data: TranslationData, device: Device, report: ProgressReporter) -> Training:
    """Return the training of a run, whose batches are said in a report."""
    world = device.processes * settings.nodes
    processes = counted(world, "process", "processes")
    # The fewest batches of at most max_tokens that hold an update. The tokens that batches of an earlier attempt had
    # give the number of batches that it had.
    most = batch_tokens(settings)
    batches = settings.tokens // ((most + 1) * world) + 1
    tokens = settings.tokens // (batches * world)
    if tokens < settings.max_positions:
        refuse(
            "tokens",
            settings.tokens,
            f"with {option('max_tokens', most)} an update of {processes} has "
            f"batches of {tokens} tokens, and a sentence may have {option('max_positions', settings.max_positions)}. "
            "Give more tokens, or take fewer processes (--gpus, --cpus, --nodes).",
        )
    report.say(
        f"{tokens * batches * world} tokens per update: {processes} × --update-freq {batches} × --max-tokens {tokens}"
    )
    if (device.kind, device.precision) == ("cpu", "bf16"):
        from posnet_fairseq.ops.linear import SLOW_BF16, multiplies_bf16  # imports torch

        if not multiplies_bf16():
            report.say(f"{option('precision', 'bf16')}: {SLOW_BF16}")
    arguments = [
        settings.data_folder,
        *("--max-tokens", tokens, "--update-freq", batches),
        *("--save-dir", settings.run / "checkpoints"),
        *("--log-format", "json", "--log-interval", -(-settings.interval // 10)),
        *(("--tensorboard-logdir", settings.run / "tensorboard") if settings.tensorboard else ()),
        *placed(device, world),
        *options_of(settings, data),
    ]
    launch = ["fairseq-train"] if world == 1 else _launcher(settings, device.processes)
    return Training(launch, list(map(str, arguments)), world)


def options_of(settings: RunSettings, data: TranslationData) -> list[str]:
    """Return the options of fairseq-train that do not depend on the device; those of the user are the last."""
    named = by_name(settings.options)
    criterion, optimizer = named.get("--criterion", CRITERION), named.get("--optimizer", OPTIMIZER)
    options = [
        *("--user-dir", settings.user_dir or short(USER_DIR)),
        *("--arch", settings.arch, "--seed", settings.seed),
        "--share-all-embeddings" if shares_embeddings(settings, data) else "--share-decoder-input-output-embed",
        *("--criterion", criterion),
        *(("--label-smoothing", settings.label_smoothing) if "label_smoothed" in criterion else ()),
        *("--optimizer", optimizer),
        *(("--adam-betas", settings.adam_betas, "--adam-eps", settings.adam_eps) if optimizer in ADAMS else ()),
        *("--lr", settings.lr, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", settings.warmup),
        *(_by_bleu(settings, data) if settings.stop_on else ("--best-checkpoint-metric", "ppl")),
        *("--max-update", settings.updates),
        *("--max-source-positions", settings.max_positions, "--max-target-positions", settings.max_positions),
        *("--skip-invalid-size-inputs-valid-test", "--required-batch-size-multiple", 1),
        *("--save-interval-updates", settings.interval, "--no-epoch-checkpoints"),
        *(("--patience", settings.patience) if settings.patience else ()),
        *(("--finetune-from-model", settings.init_from) if settings.init_from else ()),
        *settings.model_options,
    ]
    return list(map(str, options))


def _by_bleu(settings: RunSettings, data: TranslationData) -> list[str]:
    """Return the options by which validations translate, greedily, and the best checkpoint has the most BLEU."""
    if common_bleu_tokenizer(data.target) is None:
        refuse("stop_on", settings.stop_on, f"BLEU needs different tokenizers for {data.target}. Leave it out.")
    text = {"data": str(settings.data_folder), "source_lang": data.source, "target_lang": data.target}
    search = {"beam": 1, "max_len_a": float(settings.max_len_a), "max_len_b": settings.max_len_b}
    return [
        *("--eval-bleu", "--eval-tokenized-bleu", "--eval-bleu-args", json.dumps(search)),
        *("--eval-bleu-detok", "posnet", "--eval-bleu-detok-args", json.dumps(text)),
        *("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"),
    ]


def placed(device: Device, world: int) -> list[str]:
    """Return options of fairseq-train about where it computes."""
    options = device.option + ([] if device.precision == "fp32" else [f"--{device.precision}"])
    if world == 1:
        return [*options, "--distributed-world-size", "1"]
    # fairseq has legacy_ddp for CPUs, too: one code path on all machines.
    options += ["--ddp-backend", "legacy_ddp", "--load-checkpoint-on-all-dp-ranks"]
    return [*options, "--distributed-backend", "gloo"] if device.kind == "cpu" else options


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


def prepare(dataset: str, folder: Path, *options: str) -> list[str]:
    """Return the command that makes a dataset."""
    return ["posnet-prepare", dataset, *options, "--out", str(folder)]


def batch_tokens(settings: RunSettings) -> int:
    """Return the most tokens of one batch. A training that has begun keeps its own, unless others are asked for."""
    return settings.max_tokens or _begun_with(settings) or int(hyperparameters(settings.size)["max_tokens"])


def _begun_with(settings: RunSettings) -> int | None:
    """Return the tokens of a batch of a training that is finished, or has checkpoints to go on from; else None."""
    record = Record(settings.run / "train.json")
    attempts = record.content["attempts"]
    if not attempts or not (record.finished or any((settings.run / "checkpoints").glob("*.pt"))):
        return None
    # A failed attempt may have run out of memory.
    worked = [attempt for attempt in attempts if not attempt["outcome"].startswith("exit code")]
    return int(value_of((worked or attempts)[-1]["command"], "--max-tokens"))


def _dictionaries(settings: RunSettings, data: TranslationData) -> list[bytes]:
    paths = (settings.data_folder / dictionary_file(language) for language in (data.source, data.target))
    return [path.read_bytes() for path in paths if path.exists()]


def shares_embeddings(settings: RunSettings, data: TranslationData) -> bool:
    """Return whether both languages share their embeddings: those with separate vocabularies do not."""
    found = _dictionaries(settings, data)
    # A dry run without data has no dictionaries, and shows one.
    return not data.exists or (len(found) == 2 and found[0] == found[1])
