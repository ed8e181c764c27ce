"""Memory of training steps in float32: what `posnet-mixers --memory` estimates against what a GPU takes."""

import gc
from argparse import Namespace

import torch
from rich.console import Console

from posnet_fairseq.bench.tables import mebibytes, table
from posnet_fairseq.bench.training_memory import loss, training_memory
from posnet_fairseq.fairseq_plugin.fused_adam import FusedAdam
from posnet_fairseq.transformer.architectures import apply_arch
from posnet_fairseq.transformer.model import PADDING, build_transformer

MIXERS = ("attention", "rposnet", "shaw")
SIZE, TOKENS, WORDS, LENGTH = "base", 4096, 8000, 64


def measured(mixer: str) -> tuple[int, int]:
    """Bytes allocated and reserved at the peak of the second of two training steps, model and optimizer counted."""
    torch.manual_seed(1)
    torch.cuda.empty_cache()
    cfg = Namespace(share_all_embeddings=True, max_source_positions=128, max_target_positions=128)
    apply_arch(cfg, mixer, SIZE)
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    model = build_transformer(cfg, WORDS, WORDS).train().cuda()
    optimizer = FusedAdam(model.parameters(), lr=1e-4)
    source = torch.randint(PADDING + 3, WORDS, (TOKENS // LENGTH, LENGTH), device="cuda")
    target = source.flip(0)
    source[: len(source) // 10, 0] = PADDING
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        loss(model, source, target, chunked=True).backward()
        optimizer.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before[0], torch.cuda.max_memory_reserved() - before[1]


def main() -> None:
    """Print the table."""
    title = f"fp32, size {SIZE}, {TOKENS} tokens in sentences of {LENGTH}, {WORDS} words, MiB"
    shown = table(title, "estimated", "allocated", "reserved", "allocated /\nestimated")
    for mixer in MIXERS:
        allocated, reserved = measured(mixer)
        gc.collect()
        estimate = training_memory(mixer, SIZE, TOKENS, words=WORDS, length=LENGTH, precision="fp32")
        shown.add_row(mixer, *map(mebibytes, (estimate, allocated, reserved)), f"{allocated / estimate:.2f}")
    Console(highlight=False).print(shown)


if __name__ == "__main__":
    main()
