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
