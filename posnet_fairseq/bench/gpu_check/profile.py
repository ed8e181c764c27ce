"""What a training step and a decoding of a batch spend their time on, with the waits for the device counted."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from posnet_fairseq.bench.models import beam_search, mixer_transformer, on_device, random_sample, training_step
from posnet_fairseq.fairseq_plugin import synthetic

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "aten::item")
WORDS, LENGTH, ROWS = 1000, 24, 15


def report(what: str, function: Callable[[], object]) -> None:
    """Print the waits and the longest operations of a call, after one that warms up."""
    function()
    gpu = torch.cuda.is_available()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profile(activities=activities) as run:
        function()
    averages = run.key_averages()
    counts = {each.key: each.count for each in averages}
    print(f"{what}: " + ", ".join(f"{name} {counts.get(name, 0)}" for name in WAITS))
    order = "self_cuda_time_total" if gpu else "self_cpu_time_total"
    print(averages.table(sort_by=order, row_limit=ROWS, max_name_column_width=50))


def main() -> None:
    """Profile a small rposnet."""
    torch.manual_seed(1)
    task = synthetic.task(WORDS)
    sentences = 64 if torch.cuda.is_available() else 4
    model, sample = on_device(
        mixer_transformer(task, "rposnet", "tiny", LENGTH + 2),
        random_sample(task.source_dictionary, sentences, LENGTH),
    )
    report("training step", training_step(model, task, sample))
    with torch.inference_mode():
        report(f"decoding of {LENGTH} steps", beam_search(model, task, sample, 5, LENGTH))


if __name__ == "__main__":
    main()
