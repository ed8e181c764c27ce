"""Where the time of a training step and of a search goes, and how often the host waits for the device."""

import re
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from posnet_fairseq.bench.models import beam_search, mixer_transformer, random_sample, training_step
from posnet_fairseq.fairseq_plugin import synthetic

MIXERS = ("attention", "rposnet")
LENGTH = 32
WAITS = r"cuda(Stream|Device|Event)Synchronize"  # what the profiler calls it when the host waits for a GPU
OPERATIONS = 12  # in a table


def profiled(title: str, function: Callable[[], object], steps: int) -> None:
    """Print the operations that take most time in a call, and the waits in each of its steps."""
    for _ in range(2):
        function()
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
    with profile(activities=activities) as run:
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # which is one wait more
    averages = run.key_averages()
    waits = {each.key: each.count / steps for each in averages if re.fullmatch(WAITS, each.key)}
    print(f"{title}, waits for a GPU in each of {steps} steps:")
    print(", ".join(f"{name} {count:.1f}" for name, count in waits.items()) or "none")
    by = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    print(averages.table(sort_by=by, row_limit=OPERATIONS, max_name_column_width=40))


def main() -> None:
    """Print the profiles of some mixers."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    size, words, sentences = ("base", 32000, 128) if on_gpu else ("tiny", 500, 4)
    torch.manual_seed(1)
    task = synthetic.task(words)
    for mixer in MIXERS:
        model = mixer_transformer(task, mixer, size, LENGTH + 2).to(device)
        sample = random_sample(task.source_dictionary, sentences, LENGTH, device)
        profiled(f"{mixer}, training", training_step(model, task, sample), 1)
        with torch.inference_mode():
            search = beam_search(model, task, sample, 5, LENGTH)
            profiled(f"{mixer}, search with beam 5", search, LENGTH + 1)


if __name__ == "__main__":
    main()
