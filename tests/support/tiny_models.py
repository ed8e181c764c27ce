"""Models of COMET and BLEURT in the layout of the released ones, of a few thousand weights, made in seconds."""

import io
import shutil
from pathlib import Path

import sentencepiece
import torch
import yaml
from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizerFast

from posnet_eval.metrics.comet import import_models

TEXT = (
    "the cat sat on the mat", "a dog ran over the bridge", "two birds sing in the old tree", "we read this book today",
    "die Katze saß auf der Matte", "ein Hund lief über die Brücke", "zwei Vögel singen im alten Baum",
    "wir lesen heute dieses Buch", "猫坐在垫子上", "一只狗跑过了桥", "两只鸟在老树上唱歌", "我们今天读这本书",
)  # fmt: skip


def sentencepiece_model(**options):
    """The bytes of a SentencePiece model of a few pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def make_encoder(folder, seed=1):
    """An XLM-RoBERTa of 2 layers with its tokenizer."""
    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(sentencepiece_model())
    tokenizer = XLMRobertaTokenizerFast(str(folder / "sentencepiece.bpe.model"))
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=130, pad_token_id=tokenizer.pad_token_id, initializer_range=0.2,
    )  # fmt: skip
    XLMRobertaModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def make_comet(folder, encoder, seed=1, kind="regression_metric", **settings):
    """Make a COMET of an encoder, with a head of random numbers; return its folder. `kind` is the library's."""
    settings = {
        "encoder_model": "XLM-RoBERTa", "pretrained_model": str(encoder), "hidden_sizes": [48, 16], "train_data": [],
        "validation_data": [], "nr_frozen_epochs": 0.3, "keep_embeddings_frozen": True,
    } | settings  # fmt: skip
    torch.manual_seed(seed)
    model = import_models().str2model[kind](**settings)
    if model.layerwise_attention:
        for number, weight in enumerate(model.layerwise_attention.scalar_parameters):
            weight.data.fill_(0.3 * number)
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "hparams.yaml").write_text(yaml.safe_dump(settings | {"class_identifier": kind}))
    versions = {"pytorch-lightning_version": "2.6.0"}
    torch.save(versions | {"state_dict": model.state_dict(), "hyper_parameters": settings}, checkpoint(folder))
    return folder


def checkpoint(folder):
    """Path of a COMET's weights."""
    return Path(folder) / "checkpoints" / "model.ckpt"


def make_bleurt(folder, wordpiece=False, seed=1, positions=512):
    """A BLEURT with SentencePiece as BLEURT-20 has it, or with WordPiece as the older ones."""
    from bleurt_pytorch import BleurtConfig, BleurtForSequenceClassification

    folder.mkdir(parents=True)
    if wordpiece:
        characters = sorted({character for line in TEXT for character in line if character != " "})
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        pieces = [*special, *characters, *(f"##{character}" for character in characters)]
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    else:
        (folder / "spm.model").write_bytes(
            sentencepiece_model(
                pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
                unk_piece="[UNK]", user_defined_symbols="[MASK]",
            )
        )  # fmt: skip
    torch.manual_seed(seed)
    config = BleurtConfig(
        vocab_size=400, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, initializer_range=0.2, max_position_embeddings=positions,
    )  # fmt: skip
    BleurtForSequenceClassification(config).save_pretrained(folder)
    return folder


def in_hub_cache(cache, name, folder):
    """Put a copy of a folder where the hub's client looks for a name."""
    place = Path(cache) / f"models--{name.replace('/', '--')}"
    shutil.copytree(folder, place / "snapshots" / ("0" * 40), dirs_exist_ok=True)
    (place / "refs").mkdir(exist_ok=True)
    (place / "refs" / "main").write_text("0" * 40)


def corpus(number):
    """So many sentences, of 1 to 12 words of TEXT each, all different."""
    words = [word for line in TEXT for word in line.split()]
    return [
        " ".join(words[(7 * line + 5 * place * (line + 1)) % len(words)] for place in range(1 + (5 * line) % 12))
        + f" {line}"
        for line in range(number)
    ]


def scores(metric, segments):
    """(N,) scores of segments, each of which must come once."""
    found = {}
    for positions, rows in metric.statistics(segments):
        assert rows.shape == (len(positions), 2)
        for position, (score, one) in zip(positions, rows, strict=True):
            assert position not in found
            assert one == 1
            found[position] = score
    return [found[position] for position in range(len(segments))]
