"""What posnet does with every option of fairseq's tasks and models: the one table, and the refusals in it."""

import argparse
import dataclasses
import multiprocessing
import signal
import subprocess
import sys
import types

import pytest
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data import EpochBatchIterator, RawLabelDataset
from fairseq.tasks.language_modeling import LanguageModelingConfig
from fairseq.tasks.translation import TranslationConfig

from posnet_fairseq.fairseq_plugin import optional_types
from posnet_fairseq.fairseq_plugin.flags import MixerLanguageModelConfig, MixerTransformerConfig
from posnet_fairseq.fairseq_plugin.repairs import options_of_transformers
from posnet_fairseq.models.mixer_language_model import MixerLanguageModel
from posnet_fairseq.registry import option_fields
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.processes import repaired
from posnet_fairseq.text import synthetic
from posnet_fairseq.transformer.model_options import language_model_fields, translation_model_fields
from support.building import WORDS, language_model_options
from support.checkpoints import checkpoint
from support.commands import python
from support.signals import processes_of, wait_until

# HONORED: inference reads as training did. REFUSED: by name, in training. WITHOUT_EFFECT on what a model reads at
# inference: it is about which sentences are trained on, the padding around them, validation, or the machine.
HONORED, REFUSED, WITHOUT_EFFECT = "honored", "refused", "without effect"

_DECODER = {
    # Built from the checkpoint's own value.
    HONORED: "decoder_self_mixer gate position_embedding decoder_layers decoder_embed_dim decoder_ffn_embed_dim "
    "decoder_attention_heads activation_fn share_decoder_input_output_embed max_target_positions",
    # Of training alone.
    WITHOUT_EFFECT: "dropout attention_dropout activation_dropout decoder_layerdrop "
    "decoder_embed_path checkpoint_activations offload_activations compile",
}
TABLE = {
    TranslationConfig: {
        HONORED: "data source_lang target_lang max_source_positions max_target_positions",
        # --truncate-source leaves sentences alone that a model can read, and --on-long decides about others.
        WITHOUT_EFFECT: "train_subset upsample_primary dataset_impl truncate_source load_alignments "
        "left_pad_source left_pad_target num_batch_buckets required_seq_len_multiple "
        "eval_bleu eval_bleu_args eval_bleu_detok eval_bleu_detok_args eval_tokenized_bleu eval_bleu_remove_bpe "
        "eval_bleu_print_samples",
    },
    LanguageModelingConfig: {
        HONORED: "data tokens_per_sample max_target_positions add_bos_token",
        REFUSED: "output_dictionary_size self_target past_target",
        # --future-target is what language models predict anyway.
        WITHOUT_EFFECT: "future_target sample_break_mode shorten_method shorten_data_split_list "
        "pad_to_fixed_length pad_to_fixed_bsz "
        "seed batch_size batch_size_valid dataset_impl data_buffer_size tpu use_plasma_view plasma_path",
    },
    MixerTransformerConfig: {
        HONORED: f"{_DECODER[HONORED]} encoder_self_mixer cross_mixer encoder_gate decoder_gate cross_gate "
        "encoder_position_embedding decoder_position_embedding length_ratio encoder_layers encoder_embed_dim "
        "encoder_ffn_embed_dim encoder_attention_heads share_all_embeddings max_source_positions",
        WITHOUT_EFFECT: f"{_DECODER[WITHOUT_EFFECT]} encoder_layerdrop encoder_embed_path weight_noise weight_noise_on "
        "subword_dropout freeze",
    },
    MixerLanguageModelConfig: {
        HONORED: f"{_DECODER[HONORED]} tokens_per_sample add_bos_token",
        WITHOUT_EFFECT: _DECODER[WITHOUT_EFFECT],
    },
}


@pytest.mark.parametrize("config", TABLE, ids=lambda config: config.__name__)
def test_every_option_is_in_the_table_once(config):
    """All options of mixers are honored: a model is built with the ones in its checkpoint."""
    listed = [name for names in TABLE[config].values() for name in names.split()]
    assert sorted(listed) == sorted({field.name for field in dataclasses.fields(config)} - {"_name", *option_fields()})


@pytest.mark.parametrize(
    ("config", "options"),
    [(TranslationConfig, translation_model_fields), (LanguageModelingConfig, language_model_fields)],
    ids=["translation", "language modeling"],
)
def test_what_is_honored_of_a_task_reaches_the_model(config, options):
    """The other options are where dictionaries are, and what they are called."""
    of_task = {option.name for option in options() if option.metadata.get("of_task")}
    assert of_task == {*TABLE[config][HONORED].split()} - {"data", "source_lang", "target_lang"}


def test_what_is_refused_of_a_task_is_refused_by_name():
    small, whole = (synthetic.dictionary(words) for words in (WORDS - 8, WORDS))
    tasks = {
        "output_dictionary_size": {"target_dictionary": small},
        "self_target": {"targets": ["self", "future"]},
        "past_target": {"targets": ["past"]},
    }
    assert {*tasks} == {*TABLE[LanguageModelingConfig][REFUSED].split()}
    for name, changed in tasks.items():
        task = types.SimpleNamespace(**{"source_dictionary": whole, "target_dictionary": whole} | changed)
        with pytest.raises(UsageError, match=f"^--{name.replace('_', '-')}"):
            MixerLanguageModel.build_model(language_model_options("attention"), task)


def test_options_of_other_models_override_nothing(tmp_path):
    """fairseq passes over what the model of a checkpoint does not know."""
    path = str(checkpoint(tmp_path / "model.pt"))
    posnets = {field.name for config in TABLE for field in dataclasses.fields(config)}
    others = options_of_transformers() - posnets
    assert {"encoder_layers_to_keep", "decoder_layers_to_keep"} <= others
    for name in others:
        with pytest.raises(UsageError, match=f"--model-overrides {name}: the models of posnet have no such option"):
            checkpoint_utils.load_checkpoint_to_cpu(path, {name: "0"})
    state = checkpoint_utils.load_checkpoint_to_cpu(path, {"dropout": 0.5, "data": "elsewhere", "unknown": 1})
    assert (state["cfg"].model.dropout, state["cfg"].task.data) == (0.5, "elsewhere")


@pytest.mark.parametrize(("torch_xla", "is_on_tpu"), [(None, False), (object(), True)])
def test_bf16_is_no_request_for_tpus(monkeypatch, torch_xla, is_on_tpu):
    monkeypatch.setattr("fairseq.utils.xm", torch_xla)
    arguments = ["--bf16", "--arch", "rposnet_base", "data"]
    read = options.parse_args_and_arch(options.get_training_parser(), arguments)
    assert (read.bf16, read.tpu) == (True, is_on_tpu)


READS = """
import runpy, sys, types
repair = runpy.run_path({script!r})["repair"]
repair.__globals__["sys"] = types.SimpleNamespace(version_info=(3, 14), modules=sys.modules)
repair()
from fairseq import tasks
from fairseq.dataclass.utils import interpret_dc_type
print(interpret_dc_type(str | None), interpret_dc_type(int), tasks.TASK_REGISTRY["translation"])
"""


@pytest.mark.thorough  # 5 s
def test_types_as_python_314_writes_them_are_read():
    done = python(READS.format(script=optional_types.__file__))
    expected = "<class 'str'> <class 'int'> <class 'fairseq.tasks.translation.TranslationTask'>"
    assert done.stdout.splitlines()[-1:] == [expected], done.stderr


@pytest.mark.thorough  # 5 s
def test_commands_of_fairseq_start_in_the_form_of_python_314(monkeypatch):
    with monkeypatch.context() as newer:
        newer.setattr(sys, "version_info", (3, 14))
        command = repaired(["fairseq-train", "--help"])
        assert repaired(["torchrun"]) == ["torchrun"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith("usage: fairseq-train"), done.stderr


@pytest.fixture
def _start_as_in_python_314():
    usual = multiprocessing.get_start_method()
    multiprocessing.set_start_method("forkserver", force=True)
    yield
    multiprocessing.set_start_method(usual, force=True)


@pytest.mark.usefixtures("_start_as_in_python_314")
@pytest.mark.parametrize("buffered", [0, 2])
def test_workers_that_read_batches_are_forked(buffered):
    """Others could not be given a function without a name."""
    batches = EpochBatchIterator(
        RawLabelDataset([3, 4]), lambda read: read, [[1], [0]], num_workers=1, buffer_size=buffered
    )
    assert list(batches.next_epoch_itr(shuffle=False)) == [[4], [3]]


WITHOUT_SEMAPHORES = """
import _multiprocessing, runpy

class SemLock(_multiprocessing.SemLock):
    def __new__(cls, *arguments, **options):
        raise PermissionError(13, "Permission denied")

_multiprocessing.SemLock = SemLock
repair = runpy.run_path({script!r})["repair"]
repair()
import posnet_fairseq.fairseq_plugin.repairs
from fairseq import pdb
from fairseq.data import EpochBatchIterator, RawLabelDataset
batches = EpochBatchIterator(RawLabelDataset([3, 4]), lambda read: read, [[1], [0]], num_workers=1)
print(list(batches.next_epoch_itr(shuffle=False)), pdb.set_trace.__name__)
"""


@pytest.mark.thorough  # 5 s
def test_fairseq_needs_no_semaphores():
    """Some containers have no /dev/shm that can be written."""
    done = python(WITHOUT_SEMAPHORES.format(script=optional_types.__file__))
    assert done.stdout.splitlines()[-1:] == ["[[4], [3]] set_trace"], done.stderr


ENDS_WHILE_A_WORKER_STARTS = """
import os, random, signal, time
import posnet_fairseq.fairseq_plugin.repairs
from fairseq.data import EpochBatchIterator, RawLabelDataset

random.seed = lambda seed: time.sleep(1)  # torch's worker does this before it looks for its parent
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGKILL))
batches = EpochBatchIterator(RawLabelDataset([3, 4]), list, [[1], [0]], num_workers=1)
list(batches.next_epoch_itr(shuffle=False))
"""


@pytest.mark.thorough  # 5 s
def test_no_worker_outlives_a_training_that_is_killed_while_it_starts(tmp_path):
    with open(tmp_path / "errors", "w+") as errors:  # no pipe, which would be open as long as the worker
        done = subprocess.run([sys.executable, "-c", ENDS_WHILE_A_WORKER_STARTS, tmp_path], stderr=errors)
        assert done.returncode == -signal.SIGKILL, errors.seek(0) or errors.read()
    wait_until(lambda: not processes_of(tmp_path), "a worker waits for batches")


@pytest.mark.parametrize("task", ["translation", "language_modeling"])
def test_data_of_other_dictionaries_are_refused(tmp_path, task):
    """fairseq itself would train on the numbers of other words from the second epoch on."""
    names = ("dict.xx.txt", "dict.yy.txt") if task == "translation" else ("dict.txt",)
    words = {"first": "abc", "same": "abc", "other": "acb"}
    for folder, symbols in words.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    languages = {"source_lang": "xx", "target_lang": "yy"} if task == "translation" else {}

    def begin(*folders):
        data = ":".join(str(tmp_path / folder) for folder in folders)
        config = TranslationConfig if languages else LanguageModelingConfig
        return tasks.setup_task(
            argparse.Namespace(task=task, **dataclasses.asdict(config()) | languages | {"data": data})
        )

    assert len(begin("first", "same").source_dictionary) == 7
    with pytest.raises(UsageError, match=rf"other/{names[0]} differs from \S+first/{names[0]}, so its data have other"):
        begin("first", "same", "other")
    (tmp_path / "other" / names[0]).unlink()  # as far as it can be known
    for name in names[1:]:
        (tmp_path / "other" / name).unlink()
    begin("first", "other")


def test_unknown_words_are_not_replaced():
    """fairseq took the option without a value for a file of the name "@@ "."""
    parser = options.get_interactive_generation_parser()
    assert parser.parse_args(["--path", "model.pt", "--replace-unk"]).replace_unk == "@@ "
    for value in ("@@ ", "", "words.txt"):
        with pytest.raises(UsageError, match=r"^--replace-unk: fairseq 0\.12\.3 has no alignments"):
            utils.load_align_dict(value)
    assert utils.load_align_dict(None) is None
