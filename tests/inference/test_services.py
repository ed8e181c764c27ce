"""Models in long-lived processes: their memory, forks and copies."""

import copy
import pickle

import pytest
import torch

import posnet_fairseq as posnet
from support.checkpoints import language_model_checkpoint
from support.commands import python
from support.signals import PATIENCE


def run(program, *arguments):
    done = python(program, *arguments, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


IMPORT = """
import os, sys
import torch

def state():
    return dict(os.environ), torch.get_num_threads(), torch.get_num_interop_threads(), sys.excepthook

hooks = []
os.register_at_fork = lambda **_: hooks.append(sys._getframe(1).f_globals["__name__"])
before = state()
import posnet_fairseq as posnet
for name in posnet.__all__:
    getattr(posnet, name)
posnet.build_mixer("attention", embed_dim=4, num_heads=2, max_positions=8)
assert state() == before
print([name for name in hooks if name.startswith("posnet")])
posnet.prepare_service()
print([name for name in hooks if name.startswith("posnet")], os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
"""


def test_importing_posnet_changes_nothing_in_a_process(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")  # this process has it
    monkeypatch.delenv("LRU_CACHE_CAPACITY")
    assert run(IMPORT) == ["[]", "['posnet_fairseq.shared.torch_process']", "64"]


PRODUCTS = """
import sys
import torch
from posnet_fairseq.inference.packing import PackedLinear
from posnet_fairseq.ops import linear
from posnet_fairseq.shared.command import command

training = sys.argv[1] == "training"
if training:
    import posnet_fairseq.models  # as fairseq's commands do
else:
    command(lambda _: None)()  # as posnet's
torch.set_num_threads(1)
linear.onednn_is_faster = lambda: True
layer = linear.Linear(256, 512)
layer = layer if training else PackedLinear(layer)

def mebibytes():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 // 2**20

with torch.set_grad_enabled(training):
    for rows in range(100, 700):
        result = layer(torch.ones(rows, 256))
        if training:
            result.sum().backward()
        if rows == 180:
            first = mebibytes()
print(mebibytes() - first)
"""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("kind", ["training", "packed"])
@pytest.mark.thorough  # 3 s each
def test_products_of_ever_other_sizes_take_no_more_memory(kind):
    """oneDNN would keep code for each size: 320 MiB and more."""
    assert int(run(PRODUCTS, kind)[0]) < 160


FORK = """
import os, signal, sys
import torch
import posnet_fairseq as posnet

posnet.prepare_service()
torch.set_num_threads(2)
model = posnet.load(sys.argv[1], pretokenized=True, fast=True)
x = torch.ones(300, 300)
x @ x, x.exp()  # in threads
expected = model.translate("w1 w2", beam=2, max_len_b=5)
signal.alarm(60)
for _ in range(2):
    if not (child := os.fork()):
        signal.alarm(20)
        x @ x, x.exp()
        os._exit(model.translate("w1 w2", beam=2, max_len_b=5) != expected)
    print(os.waitpid(child, 0)[1])
x @ x
print(torch.get_num_threads())
"""


@pytest.mark.thorough  # forks that compute are quick in tests/shared/test_processes.py
def test_a_model_that_was_loaded_before_a_fork_translates_in_the_children(small_model):
    assert run(FORK, str(small_model)) == ["0", "0", "2"]


@pytest.mark.parametrize("dtype", ["bf16", "auto"])
def test_copies_translate_alike(small_model, dtype):
    model = posnet.load(small_model, dtype=dtype, pretokenized=True)
    copied = pickle.loads(pickle.dumps(model))
    assert copied.options.dtype == model.options.dtype
    lines = ["w1 w2 w3", "w4"]
    assert copied.translate(lines, nbest=2, beam=3) == model.translate(lines, nbest=2, beam=3)


def test_copies_of_language_models(tmp_path):
    model = posnet.load_language_model(language_model_checkpoint(tmp_path / "lm.pt", "attention"), pretokenized=True)
    assert copy.deepcopy(model).generate("w1 w2") == model.generate("w1 w2")
