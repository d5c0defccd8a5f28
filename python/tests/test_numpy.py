"""The package on NumPy arrays, against attention in float64."""
import numpy as np
import pytest

import onchip

RNG = np.random.default_rng(7)


def draw(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def exact(q, k, v, keep=None, scale=None):
    """o [B, Sq, Hq, Dv] and lse [B, Hq, Sq] in float64; keep: [Sq, Sk], true = may attend."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.astype(np.float64).swapaxes(1, 2) for x in (q, k, v))
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    s = q @ k.swapaxes(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = np.log(np.exp(s).sum(-1))
        p = np.where(np.isfinite(lse)[..., None], np.exp(s - lse[..., None]), 0)
    return (p @ v).swapaxes(1, 2), lse


def close(found, wanted, bound=2e-5):
    assert found.shape == wanted.shape
    hidden = ~np.isfinite(wanted)
    assert (found[hidden] == wanted[hidden]).all()
    found, wanted = found[~hidden], wanted[~hidden]
    assert np.all(np.abs(found - wanted) <= bound * (1 + np.abs(wanted)))


@pytest.mark.parametrize("dtype, bound", [(np.float64, 1e-12), (np.float32, 2e-5), (np.float16, 4e-3)])
@pytest.mark.parametrize("seqlen_q, seqlen_k, heads, kv_heads", [(33, 33, 4, 4), (5, 70, 6, 2), (9, 4, 2, 1), (1, 128, 8, 2)])
def test_causal_is_aligned_to_the_bottom_right(dtype, bound, seqlen_q, seqlen_k, heads, kv_heads):
    q, k, v = draw(2, seqlen_q, heads, 24, dtype=dtype), draw(2, seqlen_k, kv_heads, 24, dtype=dtype), draw(2, seqlen_k, kv_heads, 40, dtype=dtype)
    distance = np.arange(seqlen_k) - (np.arange(seqlen_q)[:, None] + seqlen_k - seqlen_q)
    o, lse = onchip.attention(q, k, v, causal=True, return_lse=True)
    assert o.dtype == dtype
    for found, wanted in zip((o, lse), exact(q, k, v, distance <= 0)):
        close(found, wanted, bound)
    close(onchip.attention(q, k, v, window=(3, 1)), exact(q, k, v, (distance >= -3) & (distance <= 1))[0], bound)


def test_strided_views_masks_and_given_outputs():
    fused = draw(2, 17, 3, 4, 16)
    q, k, v = (fused[:, :, i] for i in range(3))
    fused.flags.writeable = False
    mask = RNG.random((1, 1, 17, 17)) > 0.4
    out = np.full((2, 4, 17, 16), np.nan, np.float32).swapaxes(1, 2)
    assert onchip.attention(q, k, v, mask=mask, out=out, softmax_scale=0.3) is out
    close(out, exact(q, k, v, mask, 0.3)[0])


def test_gradients_agree_with_finite_differences():
    q, k, v, dout = (draw(1, 6, 2, 5, dtype=np.float64) for _ in range(4))
    bias = draw(1, 2, 6, 6, dtype=np.float64)

    def loss():
        return (onchip.attention(q, k, v, bias=bias, causal=True) * dout).sum()

    o, lse = onchip.attention(q, k, v, bias=bias, causal=True, return_lse=True)
    grads = onchip.backward(dout, q, k, v, o, lse, bias=bias, causal=True)
    for x, grad in zip((q, k, v, bias), grads):
        for index in [tuple(RNG.integers(n) for n in x.shape) for _ in range(6)]:
            before = x[index]
            x[index] = before + 1e-6
            up = loss()
            x[index] = before - 1e-6
            down = loss()
            x[index] = before
            assert abs((up - down) / 2e-6 - grad[index]) < 1e-7
    assert grads.dsink is None


def test_packed_sequences_are_those_of_a_batch():
    lengths = [5, 0, 12]
    cu = np.cumsum([0, *lengths], dtype=np.int32)
    q, k, v = (draw(17, 2, 8) for _ in range(3))
    o, lse = onchip.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal=True, return_lse=True)
    assert lse.shape == (2, 17)
    for begin, end in zip(cu, cu[1:]):
        one = [x[None, begin:end] for x in (q, k, v)]
        if end > begin:
            close(o[None, begin:end], onchip.attention(*one, causal=True))


def test_decode_appends_in_place():
    cache_k, cache_v = np.zeros((2, 16, 2, 8), np.float32), np.zeros((2, 16, 2, 8), np.float32)
    q, k_new, v_new = draw(2, 1, 4, 8), draw(2, 1, 2, 8), draw(2, 1, 2, 8)
    cache_k[:, :5], cache_v[:, :5] = draw(2, 5, 2, 8), draw(2, 5, 2, 8)
    used = np.full(2, 5, np.int32)
    o = onchip.decode(q, cache_k, cache_v, used, k_new=k_new, v_new=v_new)
    assert (cache_k[:, 5] == k_new[:, 0]).all() and (used == 5).all()
    close(o, exact(q, cache_k[:, :6], cache_v[:, :6])[0])


def test_merge_of_halves_is_the_whole():
    q, k, v = draw(1, 7, 2, 8), draw(1, 20, 2, 8), draw(1, 20, 2, 8)
    parts = [onchip.attention(q, k[:, s], v[:, s], return_lse=True) for s in (slice(0, 9), slice(9, 20))]
    for found, wanted in zip(onchip.merge(*zip(*parts)), exact(q, k, v)):
        close(found, wanted)


def test_faults_name_the_argument():
    q = draw(1, 4, 3, 8)
    with pytest.raises(onchip.InvalidArgument, match="q: 3 heads"):
        onchip.attention(q, draw(1, 4, 2, 8), draw(1, 4, 2, 8))
    with pytest.raises(ValueError, match="q: 2 dimensions"):
        onchip.attention(q[0, 0], q, q)
    with pytest.raises(ValueError, match="backend: 'gpu', expected one of auto"):
        onchip.attention(q, q, q, backend="gpu")
    with pytest.raises(ValueError, match="mask: "):
        onchip.attention(q, q, q, mask=np.ones((1, 1, 4, 4), np.int32))
    with pytest.raises(NotImplementedError, match="cuda"):
        onchip.attention(q, q, q, backend="cuda")
    frozen = np.zeros_like(q)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="o: "):
        onchip.attention(q, q, q, out=frozen)
    assert (frozen == 0).all()


def test_the_implementation_named_is_the_one_that_runs():
    q = draw(1, 64, 2, 16)
    plan = onchip.explain(q, q, q, json=True)
    with onchip.record() as calls:
        onchip.attention(q, q, q)
        onchip.attention(q, q, q, backend="standard")
    assert calls == [("forward", plan["implementation"]), ("forward", "standard_forward")]
    assert "backward pass" in onchip.explain(q, q, q, what="backward")


def test_reports():
    assert onchip.doctor()["version"] == onchip.__version__
    assert onchip.traffic(seqlen_q=1024, heads=8, head_dim=64, dtype="bf16")["tiled"]["flops"] > 0
    with pytest.raises(onchip.InvalidArgument, match="--heads"):
        onchip.traffic(heads=0)
