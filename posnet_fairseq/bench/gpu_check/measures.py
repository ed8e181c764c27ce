"""The memory of training steps, as the check of a GPU measures it: ``python -m ...gpu_check.measures SCRATCH``."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from posnet_fairseq.bench.printed_tables import table
from posnet_fairseq.costs.training_memory import training_memory
from posnet_fairseq.runs.training import gpu_memory
from posnet_fairseq.shared.command import command
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import repaired
from posnet_fairseq.shared.progress import plain_console, print_table

GIB = 2**30
LENGTH = 32  # tokens of every sentence, the end symbol counted
UPDATES = 6
# Mixer, size, tokens of a batch, precision.
ON_GPU = (
    *((mixer, "base", 4096, "bf16") for mixer in ("attention", "rposnet", "shaw", "translution")),
    ("rposnet", "base", 16384, "bf16"),
    ("attention", "big", 16384, "bf16"),
    ("rposnet", "big", 4096, "fp16"),
    ("rposnet", "base", 4096, "fp32"),
)
ON_CPU = (("rposnet", "tiny", 256, "fp32"),)


def write_text(prefix: Path, lines: int, words: int, length: int, seed: int = 1) -> None:
    """Write PREFIX.en and PREFIX.de: every target sentence has the words of its source, reversed and renamed."""
    drawn = random.Random(seed)
    sentences = [[drawn.randrange(words) for _ in range(length)] for _ in range(lines)]
    for language, word, order in (("en", "a", 1), ("de", "b", -1)):
        text = "".join(" ".join(f"{word}{number}" for number in each[::order]) + "\n" for each in sentences)
        prefix.with_name(f"{prefix.name}.{language}").write_text(text, encoding="utf-8")


def measured(data: Path, arch: str, tokens: int, precision: str) -> float | None:
    """Return the bytes that fairseq-train allocates at most in a few updates; None on a CPU, which does not say it."""
    command = ["fairseq-train", str(data), "--user-dir", str(Path(__file__).parents[2])]
    command += (
        f"--arch {arch} --share-all-embeddings --optimizer fused_adam --lr 1e-4 --label-smoothing 0.1 "
        f"--criterion chunked_label_smoothed_cross_entropy --max-tokens {tokens} --required-batch-size-multiple 1 "
        f"--max-update {UPDATES} --disable-validation --no-save --log-format json --log-interval 1 --num-workers 0"
    ).split()
    command += [f"--{precision}"] * (precision != "fp32") + ["--cpu"] * (not torch.cuda.is_available())
    done = subprocess.run(repaired(command), capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode:
        raise UsageError(f"fairseq-train --arch {arch} failed: {said.strip().splitlines()[-1:]}")
    return gpu_memory(said)


@command
def main(arguments: Sequence[str] | None) -> None:
    """Print the memory of training steps: estimated as by posnet-mixers --memory, and that of fairseq-train."""
    folder, has_gpu = Path((arguments or sys.argv[1:])[0], "memory"), torch.cuda.is_available()
    rows, words = (ON_GPU, 30000) if has_gpu else (ON_CPU, 500)
    if not (folder / "bin" / "train.en-de.de.idx").exists():  # which is written last
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "train", UPDATES * 16384 // LENGTH, words, LENGTH - 1)
        made = "fairseq-preprocess --source-lang en --target-lang de --joined-dictionary".split()
        made += ["--trainpref", str(folder / "train"), "--destdir", str(folder / "bin")]
        subprocess.run(repaired(made), check=True, capture_output=True)
    entries = len((folder / "bin" / "dict.de.txt").read_text(encoding="utf-8").splitlines()) + 4
    shown = table(f"GiB, {entries:,} words", "size", "tokens", "precision", "estimated", "measured", "ratio")
    for mixer, size, tokens, precision in rows:
        arch = f"{'transformer_pos' if mixer == 'attention' else mixer}_{size}"
        estimate = training_memory(mixer, size, tokens, words=entries, length=LENGTH, precision=precision, gpu=has_gpu)
        found = measured(folder / "bin", arch, tokens, precision)
        ratio = ("-", "-") if found is None else (f"{found / GIB:.2f}", f"{found / estimate:.2f}")
        shown.add_row(mixer, size, f"{tokens:,}", precision, f"{estimate / GIB:.2f}", *ratio)
    print_table(shown, plain_console())


if __name__ == "__main__":
    main()
