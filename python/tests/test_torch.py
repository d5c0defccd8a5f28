"""onchip.torch beside PyTorch's own functions, on the CPU."""
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import onchip  # noqa: E402
import onchip.torch as ot  # noqa: E402

torch.manual_seed(3)


def draw(*shape, dtype=torch.float32, grad=False):
    return torch.randn(*shape, dtype=dtype, requires_grad=grad)


CASES = {
    "plain": ((2, 4, 9, 16), (2, 4, 9, 16), {}),
    "causal": ((2, 4, 9, 16), (2, 4, 9, 16), {"is_causal": True}),
    "causal, more keys": ((1, 2, 5, 8), (1, 2, 12, 8), {"is_causal": True}),
    "grouped queries": ((2, 6, 7, 8), (2, 2, 7, 8), {"enable_gqa": True}),
    "no heads": ((3, 7, 8), (3, 11, 8), {}),
    "scale": ((1, 1, 4, 8), (1, 1, 4, 8), {"scale": 0.3}),
    "mask": ((2, 3, 6, 8), (2, 3, 10, 8), {"attn_mask": (torch.rand(6, 10) > 0.3).index_fill(1, torch.tensor(0), True)}),
    "bias": ((2, 3, 6, 8), (2, 3, 10, 8), {"attn_mask": torch.randn(2, 1, 6, 10)}),
}


@pytest.mark.parametrize("case", CASES)
def test_sdpa_and_its_gradients(case):
    q_shape, k_shape, kwargs = CASES[case]
    inputs = [draw(*s, grad=True) for s in (q_shape, k_shape, k_shape)]
    found, wanted = ot.scaled_dot_product_attention(*inputs, **kwargs), F.scaled_dot_product_attention(*inputs, **kwargs)
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    dout = torch.randn_like(found)
    for a, b in zip(torch.autograd.grad(found, inputs, dout), torch.autograd.grad(wanted, inputs, dout)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_gradcheck():
    inputs = [draw(1, 4, 2, 3, dtype=torch.float64, grad=True) for _ in range(3)]
    bias = draw(1, 2, 4, 4, dtype=torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda q, k, v, b: ot.attention(q, k, v, bias=b, causal=True), (*inputs, bias))


def test_opcheck():
    q = draw(1, 5, 2, 8, grad=True)
    numbers = (None, 0.0, True, -1, -1, "bottom_right", 0, 0, "auto")
    torch.library.opcheck(ot._forward, (q, q, q, *[None] * 8, *numbers))


def test_compile_export_checkpoint_and_autocast():
    q, k, v = (draw(2, 2, 6, 8, grad=True) for _ in range(3))
    wanted = ot.scaled_dot_product_attention(q, k, v, is_causal=True)

    def call(q, k, v):
        return ot.scaled_dot_product_attention(q, k, v, is_causal=True)

    torch.testing.assert_close(torch.compile(call, fullgraph=True, backend="aot_eager")(q, k, v), wanted)

    class Module(torch.nn.Module):
        forward = staticmethod(call)

    torch.testing.assert_close(torch.export.export(Module(), (q, k, v)).module()(q, k, v), wanted)
    checkpoint(call, q, k, v, use_reentrant=False).sum().backward()
    assert q.grad is not None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert call(q, k, v).dtype == torch.bfloat16


def test_sdpa_context_reroutes_refuses_and_counts():
    q = draw(1, 2, 4, 8)
    with onchip.record() as calls, ot.sdpa():
        F.scaled_dot_product_attention(q, q, q)
        with pytest.raises(onchip.Unsupported, match="dropout_p"):
            F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
    assert [what for what, _ in calls] == ["forward"]
    with ot.sdpa(fallback=True) as counted:
        F.scaled_dot_product_attention(q, q, q, dropout_p=0.1)
    assert sum(counted.values()) == 1


def test_flash_attention_names():
    qkv = draw(2, 7, 3, 2, 8)
    q, k, v = qkv.unbind(2)
    wanted = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True).transpose(1, 2)
    for found in (ot.flash_attn_func(q, k, v, causal=True), ot.flash_attn_qkvpacked_func(qkv, causal=True)):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)
    cu = torch.tensor([0, 7, 14], dtype=torch.int32)
    packed = ot.flash_attn_varlen_func(*(x.flatten(0, 1) for x in (q, k, v)), cu, cu, 7, 7, causal=True)
    torch.testing.assert_close(packed.view_as(wanted), wanted, rtol=2e-5, atol=2e-5)
    k_cache, v_cache = torch.zeros(2, 16, 2, 8), torch.zeros(2, 16, 2, 8)
    k_cache[:, :6], v_cache[:, :6] = k[:, :6], v[:, :6]
    o = ot.flash_attn_with_kvcache(q[:, 6:], k_cache, v_cache, k[:, 6:], v[:, 6:], cache_seqlens=6, causal=True)
    torch.testing.assert_close(o, wanted[:, 6:], rtol=2e-5, atol=2e-5)


def test_gradcheck_of_lse():
    inputs = [draw(1, 4, 2, 3, dtype=torch.float64, grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(lambda q, k, v: ot.attention(q, k, v, causal=True, return_lse=True), inputs)
