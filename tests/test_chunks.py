import torch

from posnet_fairseq.ops import chunks


def test_chunks_are_as_large_as_the_limit_allows(monkeypatch):
    monkeypatch.setattr(chunks, "CPU_LIMIT", 100)
    seen = []

    def double(x, nothing):
        assert nothing is None
        seen.append(len(x))
        return 2 * x

    x = torch.arange(7.0)[:, None]
    assert torch.equal(chunks.in_chunks(double, (x, None), energies=30, recompute=False), 2 * x)
    assert seen == [3, 3, 1]
    seen.clear()
    chunks.in_chunks(double, (x, None), energies=14, recompute=False)
    assert seen == [7]
    seen.clear()
    chunks.in_chunks(double, (x, None), energies=1000, recompute=False)
    assert seen == [1] * 7


def test_dropout_is_the_same_when_it_is_made_again(monkeypatch):
    monkeypatch.setattr(chunks, "CPU_LIMIT", 1)
    x = torch.ones(4, 1000, requires_grad=True)

    def drop(x):
        return torch.nn.functional.dropout(x, 0.5)

    dropped = chunks.in_chunks(drop, (x,), energies=1, recompute=True)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())
    assert 0.4 < (dropped == 0).float().mean() < 0.6
    assert not torch.equal(dropped[0], dropped[1])
