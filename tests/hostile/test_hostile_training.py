"""fairseq-train with the plugin, with invalid options, and trainings that fail."""

import shutil

from support.damaged import put
from support.hostile import Row, play, table, then

MADE = ("trained", "trained/*")


def refused(options, says, before=lambda folder: None, makes=("trained",)):
    """A row whose options are refused before the first update, or whose training writes no checkpoint."""
    return Row(options, f"train {options}", says, before=before, makes=makes)


def trains(options):
    """A row with unusual but valid options."""
    return Row(options, f"train {options}", code=0, makes=MADE)


def vectors(folder):
    """Of another width than the model's."""
    (folder / "vectors").write_text("1 3\n</s> 0.1 0.2 0.3\n")


def begun(folder):
    """A training of 15 updates to resume."""
    shutil.copytree(folder / "run", folder / "trained")


def with_words_exchanged(folder):
    """The first two words of a dictionary."""
    path = folder / "data/dict.xx.txt"
    first, second, *others = path.read_text().splitlines(keepends=True)
    path.unlink()  # stages have the same file
    path.write_text("".join([second, first, *others]))


ROWS = [
    # It diverges; fairseq keeps crash.pt.
    refused("--lr 1e30", "posnet: error: the training diverged", makes=MADE),
    # Half precision without a GPU.
    refused("--fp16", "--fp16: fairseq trains with it on a GPU, and --cpu was given"),
    refused("--amp", "--amp: fairseq trains with it on a GPU, and --cpu was given"),
    refused(
        "--criterion label_smoothed_cross_entropy_with_alignment", "in training. Give label_smoothed_cross_entropy"
    ),
    refused("--dataset-impl lazy", "was binarized as mmap. Leave the option out"),
    # Nothing to train on.
    refused("--max-tokens 1", "a set has no batch. .*longer than --max-tokens"),
    refused("--required-batch-size-multiple 4096", "a set has no batch. .*give --required-batch-size-multiple 1"),
    refused("--skip-remainder-batch --update-freq 9", "an epoch has not a single update"),
    # Out of range.
    refused("--lr 0.1,-0.1", "--lr -0.1: give 0 or more"),
    refused("--max-tokens 0", "--max-tokens 0: give 1 or more"),
    refused("--max-valid-steps -1", "--max-valid-steps -1: give 1 or more"),
    refused("--num-workers 5000", "--num-workers 5000: give at most [0-9]+: each is a process, and this machine has"),
    refused("--lr 0.1,0.01", "--lr: give one value, from which --lr-scheduler inverse_sqrt makes its own"),
    refused("--adam-betas '(0.9,1)'", r"--adam-betas \(0.9,1\): give two numbers"),
    refused("--optimizer fused_adam --fp16-adam-stats", "--fp16-adam-stats: --optimizer fused_adam has no such state"),
    # What is not there.
    refused("--best-checkpoint-metric bleu", "--best-checkpoint-metric bleu: the validation does not measure it"),
    refused("--restore-file none.pt", "--restore-file none.pt: there is no such checkpoint"),
    refused("--restore-file run", "--restore-file run: there is no such checkpoint"),
    refused("--finetune-from-model run", r"--finetune-from-model run is a directory\. Give a checkpoint in it"),
    refused("--encoder-embed-path vectors", "vectors: give a text file .* and 32 numbers", vectors),
    refused("--distributed-world-size 2000", "number of GPUs of this machine: ", makes=()),
    refused("--seed 2", "data/dict.xx.txt is not the file that data/dataset.json was made with", with_words_exchanged),
    # What was begun otherwise.
    refused(
        "--arch aposnet_tiny", "trained with --encoder-self-mixer rposnet .* but the options say aposnet", begun, ()
    ),
    refused("--encoder-embed-dim 16 --decoder-embed-dim 16", "the checkpoint does not fit the options", begun, ()),
    refused("--optimizer sgd", "made with another --criterion or --optimizer", begun, ()),
    refused(
        "--max-update 20",
        "made with other data or batches",
        then(begun, put("extra_state", "train_iterator", "iterations_in_epoch", 99, name="trained/checkpoint_last.pt")),
        (),
    ),
    # These are right.
    trains("--lr-scheduler cosine --warmup-updates 0"),
    trains("--restore-file run/checkpoint_1_5.pt --max-update 7"),
    trains("--finetune-from-model run/checkpoint_1_5.pt"),
    trains("--adam-betas '[0.9, 0.98]'"),
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
