"""The tokens of a batch: those of the size; on GPUs, what their memory holds."""

import argparse
import dataclasses
import threading
from typing import Any

from posnet_fairseq.runs.devices import Device
from posnet_fairseq.runs.run_settings import RunSettings, TranslationData, hyperparameters
from posnet_fairseq.runs.settings import refuse
from posnet_fairseq.runs.systems import find_mixer
from posnet_fairseq.runs.training import option
from posnet_fairseq.shared.criterions import PREFIX
from posnet_fairseq.shared.errors import flag
from posnet_fairseq.shared.progress import ProgressReporter
from posnet_fairseq.shared.records import Record
from posnet_fairseq.text.dictionary import dictionary_file

GIB = 2**30
# Of a GPU: its context takes some, and its allocator leaves gaps.
CONTEXT, USABLE = GIB, 0.9
CRITERION = f"{PREFIX}label_smoothed_cross_entropy"  # unless the run's options name another
_one_at_a_time = threading.Lock()  # of estimates: runs are done side by side
WORDS = 43650  # entries of a dictionary that is not there yet: PosNet's for WMT14


def batch_tokens(
    settings: RunSettings, data: TranslationData, device: Device, world: int, report: ProgressReporter
) -> int:
    """Return the most tokens of one batch. A training that has begun keeps its own, unless others are asked for."""
    kept = settings.max_tokens or _begun_with(settings)
    if kept:
        return kept
    if device.memory is None:
        return int(hyperparameters(settings.size)["max_tokens"])
    usable = int(USABLE * device.memory) - CONTEXT

    least, tokens = settings.max_positions, max(settings.tokens // world, settings.max_positions)
    need = _estimate(settings, data, device, tokens, world)
    if need > usable:
        least_need = _estimate(settings, data, device, least, world)
        if least_need > usable:
            refuse(
                "size",
                settings.size,
                f"a training step with a single sentence of {least} tokens takes about {least_need / GIB:.1f} GiB, and "
                f"of the run's {device.memory / GIB:.1f} GiB of GPU memory {max(usable, 0) / GIB:.1f} are left for it. "
                "Take a smaller size, or fewer tokens of a sentence (--max-positions), or try your own --max-tokens.",
            )
        # Between the two it grows about linearly.
        tokens = least + (tokens - least) * (usable - least_need) // (need - least_need)
        while (need := _estimate(settings, data, device, tokens, world)) > usable:
            tokens = max(tokens * 9 // 10, least)
    report.say(
        f"batches of {tokens} tokens: a training step takes about {need / GIB:.1f} GiB of "
        f"{device.memory / GIB:.1f} on the GPU (--max-tokens chooses other batches)"
    )
    return tokens


def _begun_with(settings: RunSettings) -> int | None:
    """Return the tokens of a batch of a training that is finished, or has checkpoints to go on from; else None."""
    record = Record(settings.run / "train.json")
    attempts = record.content["attempts"]
    if not attempts or not (record.finished or any((settings.run / "checkpoints").glob("*.pt"))):
        return None
    # A failed attempt may have run out of memory.
    worked = [attempt for attempt in attempts if not attempt["outcome"].startswith("exit code")]
    return int(option((worked or attempts)[-1]["command"], "--max-tokens"))


def _dictionaries(settings: RunSettings, data: TranslationData) -> list[bytes]:
    paths = (settings.data_folder / dictionary_file(language) for language in (data.source, data.target))
    return [path.read_bytes() for path in paths if path.exists()]


def shares_embeddings(settings: RunSettings, data: TranslationData) -> bool:
    """Return whether both languages share their embeddings: those with separate vocabularies do not."""
    found = _dictionaries(settings, data)
    # A dry run without data has no dictionaries, and shows one.
    return not data.exists or (len(found) == 2 and found[0] == found[1])


def _estimate(settings: RunSettings, data: TranslationData, device: Device, tokens: int, world: int) -> int:
    """Estimate the bytes at the peak of a training step, with the longest sentences, which take the most."""
    from posnet_fairseq.costs.training_memory import training_memory  # imports all of a model

    shared, options = shares_embeddings(settings, data), _options(settings)
    criterion = options.pop("criterion", CRITERION)
    with _one_at_a_time:
        return training_memory(
            find_mixer(settings.mixer, "--mixer").name,
            settings.size,
            tokens,
            # of the larger dictionary, whose file leaves out the special symbols
            words=max((words.count(b"\n") + 4 for words in _dictionaries(settings, data)), default=WORDS),
            length=settings.max_positions,
            precision=device.precision,
            chunked=criterion.startswith(PREFIX),
            distributed=world > 1,
            **{"share_all_embeddings": shared, "share_decoder_input_output_embed": not shared} | options,
        )


def _options(settings: RunSettings) -> dict[str, Any]:
    """Return what the options of fairseq-train say about the model, and the criterion if they name one."""
    from posnet_fairseq.mixers.bases.mixer_options import plain_type
    from posnet_fairseq.transformer.model_options import TransformerOptions

    parser = argparse.ArgumentParser(
        allow_abbrev=False, argument_default=argparse.SUPPRESS, add_help=False, exit_on_error=False
    )
    for field in dataclasses.fields(TransformerOptions):
        kind = plain_type(field)
        how: Any = {"action": "store_true"} if kind is bool else {"type": kind if kind in (int, float) else str}
        parser.add_argument(flag(field.name), **how)
    parser.add_argument("--criterion")
    try:
        return vars(parser.parse_known_args(settings.options.split())[0])
    except argparse.ArgumentError as error:
        refuse("options", settings.options, f"{error}.")
