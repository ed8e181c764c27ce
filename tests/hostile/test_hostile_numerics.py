"""Sizes and options of which no model can be built, on a command line and in a checkpoint."""

import shlex

import torch

from support.commands import USER_DIR
from support.hostile import Row, play, table


def stored(**options):
    """A function that changes options stored in model.pt."""

    def change(folder):
        state = torch.load(folder / "model.pt", weights_only=True)
        state["cfg"]["model"] |= options
        torch.save(state, folder / "model.pt")

    return change


# What a checkpoint may say, and the sentence for it.
OPTIONS = [
    ({"encoder_layers": 10**7}, "10000000 layers of the encoder, and it has weights of 2"),
    ({"decoder_layers": 10**7}, "10000000 layers of the decoder, and it has weights of 2"),
    ({"encoder_layers": 0}, "0 layers of the encoder, and it has weights of 2"),
    ({"encoder_layers": -1}, "-1 layers of the encoder, and it has weights of 2"),
    ({"encoder_layers": "many"}, "option encoder_layers is 'many', not a whole number"),
    ({"decoder_layers": 2.5}, r"option decoder_layers is 2\.5, not a whole number"),
    ({"encoder_layers": None}, "option encoder_layers is missing"),
    ({"encoder_embed_dim": 10**9}, "--encoder-embed-dim 1000000000: give at most 32768"),
    ({"decoder_embed_dim": 10**9}, "--decoder-embed-dim 1000000000: give at most 32768"),
    ({"encoder_ffn_embed_dim": 10**9}, "--encoder-ffn-embed-dim 1000000000: give at most 131072"),
    (
        {"encoder_layers": 1000, "encoder_embed_dim": 2**15},
        "1000 layers of the encoder, and it has weights of 2",
    ),
    ({"encoder_attention_heads": 0}, "--encoder-attention-heads 0: give 1 or more"),
    ({"decoder_attention_heads": 10**9}, "--decoder-attention-heads 1000000000: give at most 32768"),
    ({"encoder_attention_heads": 5}, "--encoder-attention-heads 5: the width 64 of the encoder does not divide by it"),
    ({"max_source_positions": 10**9}, "--max-source-positions 1000000000: give at most 1000000"),
    ({"max_target_positions": 0}, "--max-target-positions 0: give 1 or more"),
    ({"clip_distance": "0"}, "--clip-distance 0: K must be at least 1"),
    ({"clip_distance": "-3"}, "--clip-distance -3: K must be at least 1"),
    ({"clip_distance": "100000000"}, "--clip-distance 100000000: give at most 65536"),
    ({"clip_distance": "1000000000"}, "--clip-distance 1000000000: give a whole number of at most 9 digits"),
    ({"clip_distance": "4,8,16"}, "--clip-distance 4,8,16: these are 3 values for 2 layers"),
    ({"clip_distance": "4,"}, "--clip-distance 4,: give a whole number"),
    ({"dropout": 2.0}, r"--dropout 2\.0: give 0 or more and less than 1"),
    ({"attention_dropout": float("nan")}, "option attention_dropout is nan, not a number"),
    ({"activation_dropout": "a little"}, "option activation_dropout is 'a little', not a number"),
    ({"gate": "sigmoid"}, "option gate is 'sigmoid', not one of none, gelu, glu"),
    ({"cross_gate": "sigmoid"}, "option cross_gate is 'sigmoid', not one of"),
    ({"position_embedding": "rotary"}, "option position_embedding is 'rotary', not one of sinusoidal"),
    ({"activation_fn": "step"}, "option activation_fn is 'step', not one of"),
    ({"encoder_self_mixer": "mamba"}, "--encoder-self-mixer mamba: there is no such mixer"),
    ({"decoder_self_mixer": "fouriernet"}, "--decoder-self-mixer fouriernet: this mixer cannot stand there"),
    ({"decoder_self_mixer": None}, "option decoder_self_mixer is missing"),
    (
        {"encoder_self_mixer": "translution", "translution_clip": 10**9},
        "--translution-clip 1000000000: give a whole number of at most 9 digits",
    ),
    (
        {"encoder_self_mixer": "translution", "translution_clip": 10**8},
        "--translution-clip 100000000: 200000001 matrices of 64 × 64 in a layer",
    ),
    (
        {"encoder_self_mixer": "translution", "max_source_positions": 10**6},
        "--translution-clip left out: 1999999 matrices",
    ),
    (
        {"encoder_self_mixer": "alpha_translution", "alpha_dim": 10**8, "translution_clip": 4},
        "--translution-clip 4: 9 matrices of 400000000 × 400000000",
    ),
    ({"decoder_self_mixer": "irpe", "irpe_beta": 10**8}, "--irpe-beta 100000000: give at most 65536"),
    ({"decoder_self_mixer": "irpe", "irpe_beta": -1}, "--irpe-beta -1: give 1 or more"),
]

ROWS = [
    *(
        Row(
            f"translated with a stored {' '.join(options)} of {' '.join(map(str, options.values()))}",
            "posnet-translate model.pt --pretokenized",
            sentence,
            before=stored(**options),
            stdin="w1 w2\n",
        )
        for options, sentence in OPTIONS
    ),
    Row(
        "precomputed with ten million layers",
        "posnet-precompute model.pt --out fast.pt",
        "they say 10000000 layers of the encoder, and it has weights of 2",
        before=stored(encoder_layers=10**7),
    ),
    Row(
        "trained with ten million layers",
        f"fairseq-train data --arch rposnet_tiny --encoder-layers 10000000 --cpu --user-dir {shlex.quote(USER_DIR)}",
        "posnet: error: --encoder-layers 10000000: give at most 1000",
    ),
    Row(
        "trained with a table of two billion offsets",
        f"fairseq-train data --arch rposnet_tiny --clip-distance 100000000 --cpu --user-dir {shlex.quote(USER_DIR)}",
        "posnet: error: --clip-distance 100000000: give at most 65536",
    ),
]


@table(ROWS)
def test_row(row, folder, monkeypatch, capfd):
    play(row, folder, monkeypatch, capfd)
