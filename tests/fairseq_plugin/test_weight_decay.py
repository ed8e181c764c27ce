"""iRPE's tables take no weight decay, whichever of fairseq's optimizers runs."""

import pytest
import torch
from fairseq import optim
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from support.building import build_model

TABLE = "encoder.layers.0.self_attn.on_keys"


def options(name, **common):
    betas = {"momentum": 0.0} if name == "sgd" else {"adam_betas": "(0.9, 0.999)", "adam_eps": 1e-8}
    root = FairseqConfig()
    cfg = OmegaConf.create({"common": root.common, "optimization": root.optimization})
    cfg.distributed_training = root.distributed_training
    cfg.optimizer = {"_name": name, "lr": [0.1], "weight_decay": 0.5, **betas}
    cfg.common = OmegaConf.merge(cfg.common, common)
    return cfg


def step(optimizer, model):
    """One optimizer step with zero gradients, so that only weight decay changes parameters."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


@pytest.mark.parametrize("name", ["adam", "fused_adam", "sgd"])
def test_only_tables_are_exempt(name):
    model = build_model("irpe")
    optimizer = optim.build_optimizer(options(name).optimizer, list(model.parameters()))
    decayed = step(optimizer, model)
    tables = {parameter for parameter, _ in model.named_parameters() if parameter.endswith("on_keys")}
    assert TABLE in tables
    assert decayed == {parameter for parameter, _ in model.named_parameters()} - tables


@pytest.mark.parametrize("dynamic", [False, True])
def test_in_groups_of_the_composite_optimizer(dynamic):
    model = build_model("irpe")
    cfg = options("adam")
    group = {"lr": [0.1], "lr_float": None, "optimizer": cfg.optimizer, "lr_scheduler": {"_name": "fixed"}}
    model.encoder.final_norm.weight.param_group = "norm"  # it wants more than one group
    groups = {"default": group, "norm": group}
    cfg.optimizer = {"_name": "composite", "dynamic_groups": dynamic, "groups": groups}
    optimizer = optim.build_optimizer(cfg.optimizer, list(model.parameters()))
    decayed = step(optimizer, model)
    assert TABLE not in decayed
    assert TABLE.replace("on_keys", "query_proj.weight") in decayed


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_in_16_bit_too(kind):
    """fairseq would make one flat tensor of all parameters with fp16."""
    model = build_model("irpe").to(torch.float16 if kind == "fp16" else torch.bfloat16)
    cfg = options("adam", **{kind: True})
    optimizer = optim.FP16Optimizer.build_optimizer(cfg, list(model.parameters()))
    table, other = (model.get_parameter(name) for name in (TABLE, TABLE.replace("on_keys", "query_proj.weight")))
    before = table.clone(), other.clone()
    optimizer.backward(sum(0 * parameter.sum() for parameter in model.parameters()))
    optimizer.step()
    assert torch.equal(table, before[0])
    assert not torch.equal(other, before[1])


def test_without_tables_there_is_one_group():
    model = build_model("attention")
    assert len(optim.build_optimizer(options("adam").optimizer, list(model.parameters())).param_groups) == 1
