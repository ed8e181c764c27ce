"""Parts of a model that a training leaves as they are."""

import pytest
import torch
from fairseq import optim
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from posnet_fairseq.fairseq_plugin.freezing import frozen
from posnet_fairseq.ops.output_loss import output_loss
from posnet_fairseq.shared.errors import UsageError
from posnet_fairseq.shared.failures import explain
from support.building import ONE_OF_EACH_BASE, WORDS, build_model

SEPARATE = {"share_all_embeddings": False}
PARTS = {
    "encoder": lambda name, shared: name.startswith("encoder.") or (shared and "embed_tokens" in name),
    "decoder": lambda name, shared: name.startswith("decoder.") or (shared and "embed_tokens" in name),
    "embeddings": lambda name, shared: "embed_tokens" in name,
}


def changed(model, bf16=False):
    """Names of parameters that a step with weight decay changes; the loss is that in chunks."""
    cfg = {"_name": "fused_adam", "lr": [0.1], "weight_decay": 0.5, "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8}
    cfg |= {"fp16_adam_stats": False, "use_old_adam": False, "tpu": False}
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]  # as fairseq's trainer
    if bf16:
        model.to(torch.bfloat16)
        whole = FairseqConfig()
        parts = {name: getattr(whole, name) for name in ("common", "optimization", "distributed_training")}
        root = OmegaConf.create(parts | {"optimizer": cfg})
        root.common.bf16 = True
        optimizer = optim.FP16Optimizer.build_optimizer(root, params)
    else:
        optimizer = optim.build_optimizer(OmegaConf.create(cfg), params)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, WORDS, (3, 7), generator=generator)
    model.train()
    features = model(tokens, None, tokens, features_only=True)[0]
    loss = output_loss(features.flatten(0, 1), model.decoder.output_projection.weight, tokens.flatten(), 0.1, 1).loss
    optimizer.backward(loss)
    optimizer.step()
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}


@pytest.mark.parametrize("mixer", ONE_OF_EACH_BASE)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("shared", [True, False])
def test_what_is_frozen_does_not_change_and_all_else_does(mixer, part, shared):
    own = {"fouriernet": {"decoder_self_mixer": "attention"}}.get(mixer, {})
    model = build_model(mixer, freeze=part, **own, **({} if shared else SEPARATE))
    kept = {name for name, _ in model.named_parameters() if PARTS[part](name, shared)}
    assert changed(model) == {name for name, _ in model.named_parameters()} - kept
    count = sum(parameter.numel() for name, parameter in model.named_parameters() if name in kept)
    assert f"--freeze {part}: {count:,} of " in frozen(model, part)[0]


def test_in_16_bit_too():
    model = build_model("rposnet", freeze="encoder")
    names = changed(model, bf16=True)
    assert names
    assert not any(name.startswith("encoder.") for name in names)


@pytest.mark.parametrize("part", PARTS)
def test_with_checkpoints_of_activations(part):
    model = build_model("rposnet", freeze=part, checkpoint_activations=True)
    assert changed(model) == changed(build_model("rposnet", freeze=part))


def test_several_parts_are_named_with_commas():
    model = build_model(freeze="decoder,embeddings", **SEPARATE)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith("encoder.layers")} | {
        name for name, _ in model.named_parameters() if name.startswith("encoder.final_norm")
    }
    assert not frozen(build_model(), None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("encoder,decoder", "--freeze encoder,decoder: that is the whole model. Leave out encoder or decoder."),
        ("layers", "--freeze 'layers': give one or more of encoder, decoder, embeddings, with commas between."),
    ],
)
def test_bad_parts_are_refused(text, sentence):
    with pytest.raises(UsageError, match=f"^{sentence}$"):
        build_model(freeze=text)


def test_to_go_on_with_other_frozen_parts_is_explained():
    optimizers = [
        torch.optim.SGD([each for each in build_model(freeze=text).parameters() if each.requires_grad], lr=0.1)
        for text in (None, "encoder")
    ]
    with pytest.raises(ValueError, match="doesn't match the size") as error:
        optimizers[0].load_state_dict(optimizers[1].state_dict())
    assert "Give the same --freeze, or another --save-dir" in explain(error.value)
