"""onchip for PyTorch: custom operators with gradients, and the functions people call today under their own names.

Tensors keep any strides whose last is 1; one with another is copied. Dropout is refused: attention here is exact.
"""
from __future__ import annotations

import contextlib
import logging
from collections import Counter
from typing import Iterator, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _attention
from ._errors import InvalidArgument, Unsupported

_log = logging.getLogger("onchip")


def _outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    o = q.new_empty((*q.shape[:-1], v.shape[-1]))
    lse_shape = (q.shape[1], q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2], q.shape[1])
    return o, q.new_empty(lse_shape, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)


def _plain(tensor: Optional[Tensor]) -> Optional[Tensor]:
    return None if tensor is None else tensor.detach()


@torch.library.custom_op("onchip::attention", mutates_args=())
def _forward(q: Tensor, k: Tensor, v: Tensor, bias: Optional[Tensor], mask: Optional[Tensor],
             alibi_slopes: Optional[Tensor], sink: Optional[Tensor], cu_seqlens_q: Optional[Tensor],
             cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor], page_table: Optional[Tensor],
             softmax_scale: Optional[float], softcap: float, causal: bool, window_left: int, window_right: int,
             alignment: str, max_seqlen_q: int, max_seqlen_k: int, backend: str) -> tuple[Tensor, Tensor]:
    o, lse = _outputs(q, v)
    _attention.attention(_plain(q), _plain(k), _plain(v), bias=_plain(bias), mask=mask, alibi_slopes=alibi_slopes,
                         sink=_plain(sink), cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k,
                         page_table=page_table, softmax_scale=softmax_scale, softcap=softcap, causal=causal,
                         window=(window_left, window_right), alignment=alignment, max_seqlen_q=max_seqlen_q,
                         max_seqlen_k=max_seqlen_k, backend=backend, out=o, lse=lse)
    return o, lse


@_forward.register_fake
def _(q, k, v, *_):
    return _outputs(q, v)


_GRADIENTS = ("dq", "dk", "dv", "dbias", "dsink")


@torch.library.custom_op("onchip::attention_backward", mutates_args=())
def _backward(dout: Tensor, o: Tensor, lse: Tensor, wanted: list[bool], q: Tensor, k: Tensor, v: Tensor,
              bias: Optional[Tensor], mask: Optional[Tensor], alibi_slopes: Optional[Tensor], sink: Optional[Tensor],
              cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], seqused_k: Optional[Tensor],
              page_table: Optional[Tensor], softmax_scale: Optional[float], softcap: float, causal: bool,
              window_left: int, window_right: int, alignment: str, max_seqlen_q: int, max_seqlen_k: int,
              backend: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    names = [name for name, is_wanted in zip(_GRADIENTS, wanted) if is_wanted]
    grads = _attention.backward(dout, q, k, v, o, lse, bias=bias, sink=sink, wanted=names, mask=mask,
                                alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                                seqused_k=seqused_k, page_table=page_table, softmax_scale=softmax_scale, softcap=softcap,
                                causal=causal, window=(window_left, window_right), alignment=alignment,
                                max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, backend=backend)
    return tuple(q.new_empty(0) if grad is None else grad for grad in grads)


@_backward.register_fake
def _(dout, o, lse, wanted, q, k, v, bias, mask, alibi_slopes, sink, *_):
    return tuple(source.new_empty(source.shape) if is_wanted else q.new_empty(0)
                 for source, is_wanted in zip((q, k, v, bias, sink), wanted))


_GRADIENT_INPUTS = (0, 1, 2, 3, 6)  # q, k, v, bias, sink
_NUM_TENSORS = 11


def _setup_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:_NUM_TENSORS], *output)
    ctx.numbers = inputs[_NUM_TENSORS:]


def _gradients(ctx, dout, dlse):
    *tensors, o, lse = ctx.saved_tensors
    result = [None] * (_NUM_TENSORS + len(ctx.numbers))
    if dout is None and dlse is None:
        return tuple(result)
    wanted = [bool(ctx.needs_input_grad[i]) and tensors[i] is not None for i in _GRADIENT_INPUTS]
    dout = torch.zeros_like(o) if dout is None else _last_contiguous(dout)
    head_dim_v = o.shape[-1]
    if dlse is not None:
        # ds = P ∘ (dp − rowsum(dout ∘ o) + dlse): one more column, of ones in o, zeros in v and −dlse in dout, adds it.
        tensors[2], o = F.pad(tensors[2], (0, 1)), F.pad(o, (0, 1), value=1.0)
        dout = torch.cat([dout, -dlse.transpose(-1, -2).unsqueeze(-1).to(dout.dtype)], -1)
    grads = list(_backward(dout, o, lse, wanted, *tensors, *ctx.numbers))
    if wanted[2]:
        grads[2] = grads[2][..., :head_dim_v]
    for i, grad, is_wanted in zip(_GRADIENT_INPUTS, grads, wanted):
        result[i] = grad if is_wanted else None
    return tuple(result)


_forward.register_autograd(_gradients, setup_context=_setup_context)


def _last_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: tuple[int, int] = (-1, -1),
              softmax_scale: Optional[float] = None, softcap: float = 0.0, bias: Optional[Tensor] = None,
              mask: Optional[Tensor] = None, alibi_slopes: Optional[Tensor] = None, sink: Optional[Tensor] = None,
              cu_seqlens_q: Optional[Tensor] = None, cu_seqlens_k: Optional[Tensor] = None,
              seqused_k: Optional[Tensor] = None, page_table: Optional[Tensor] = None, alignment: str = "bottom_right",
              max_seqlen_q: int = 0, max_seqlen_k: int = 0, backend: str = "auto", return_lse: bool = False):
    """onchip.attention as a differentiable operator (q, k, v, bias, sink): shapes and errors as there.

    Under autocast, q, k and v are cast to its type. lse has its gradient, too.
    """
    if torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)
        q, k, v = (x.to(dtype) if x.dtype == torch.float32 else x for x in (q, k, v))
    o, lse = _forward(_last_contiguous(q), _last_contiguous(k), _last_contiguous(v), bias, mask, alibi_slopes, sink,
                      cu_seqlens_q, cu_seqlens_k, seqused_k, page_table, softmax_scale, softcap, causal, window[0],
                      window[1], alignment, max_seqlen_q, max_seqlen_k, backend)
    return (o, lse) if return_lse else o


def _no_dropout(dropout_p: float) -> None:
    if dropout_p != 0.0:
        raise Unsupported(f"dropout_p: {dropout_p}, expected 0: attention here is exact")


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor] = None,
                                 dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
                                 enable_gqa: bool = False) -> Tensor:
    """torch.nn.functional.scaled_dot_product_attention: [.., H, S, D] in and out, is_causal from the top left.

    attn_mask: bool (true = may attend) or a bias in the type of query, broadcastable to [.., H, Sq, Sk]; rows without
    a key are 0, where PyTorch's may be NaN. Raises Unsupported for dropout and InvalidArgument for shapes.
    """
    _no_dropout(dropout_p)
    if is_causal and attn_mask is not None:
        raise InvalidArgument("attn_mask: given with is_causal, expected one of them")
    if query.dim() < 2:
        raise InvalidArgument(f"query: {query.dim()} dimensions, expected at least 2")
    lead = query.shape[:-2]
    if query.dim() != 4:
        query, key, value = (_four(x) for x in (query, key, value))
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise InvalidArgument(f"key: {key.shape[1]} heads, expected {query.shape[1]} as query, or enable_gqa")
    bias = mask = None
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*torch.broadcast_shapes(attn_mask.shape[:-2], lead[:0]), query.shape[2], key.shape[2])
        attn_mask = _last_contiguous(_four_mask(attn_mask, lead))
        bias, mask = (None, attn_mask) if attn_mask.dtype == torch.bool else (attn_mask, None)
    o = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), causal=is_causal, bias=bias,
                  mask=mask, softmax_scale=scale, alignment="top_left" if is_causal else "bottom_right").transpose(1, 2)
    return o if len(lead) == 2 else o.reshape(*lead, o.shape[2], o.shape[3])


def _four(tensor: Tensor) -> Tensor:
    """[.., S, D] as [B, H, S, D]: what lies before the heads is the batch."""
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(0)
    return tensor.flatten(0, -4)


def _four_mask(mask: Tensor, lead: tuple) -> Tensor:
    if len(lead) > 2:
        mask = mask.expand(*lead, *mask.shape[-2:])
    return _four(mask)


fallbacks: Counter = Counter()  # reason → how often sdpa(fallback=True) gave a call back to PyTorch


@contextlib.contextmanager
def sdpa(fallback: bool = False) -> Iterator[Counter]:
    """Reroutes torch.nn.functional.scaled_dot_product_attention to onchip inside the block, in the whole process.

    What onchip cannot take raises, or, with fallback, goes to PyTorch: logged (logger "onchip") and counted by reason
    in the Counter that the block gets and in onchip.torch.fallbacks.
    """
    original = F.scaled_dot_product_attention
    counted: Counter = Counter()

    def rerouted(*args, **kwargs):
        try:
            return scaled_dot_product_attention(*args, **kwargs)
        except (Unsupported, InvalidArgument) as error:
            if not fallback:
                raise
            counted[str(error)] += 1
            fallbacks[str(error)] += 1
            _log.warning("scaled_dot_product_attention falls back to PyTorch: %s", error)
            return original(*args, **kwargs)

    F.scaled_dot_product_attention = rerouted
    try:
        yield counted
    finally:
        F.scaled_dot_product_attention = original


def _flash_result(o: Tensor, lse: Tensor, return_attn_probs: bool):
    return (o, lse, None) if return_attn_probs else o


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None,
                    causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: Optional[Tensor] = None, deterministic: bool = False, return_attn_probs: bool = False):
    """flash_attn.flash_attn_func: [B, S, H, D], causal from the bottom right. Always deterministic.

    With return_attn_probs: (o, lse, None), for no probabilities are stored.
    """
    _no_dropout(dropout_p)
    o, lse = attention(q, k, v, causal=causal, window=window_size, softmax_scale=softmax_scale, softcap=softcap,
                       alibi_slopes=alibi_slopes, return_lse=True)
    return _flash_result(o, lse, return_attn_probs)


def flash_attn_qkvpacked_func(qkv: Tensor, *args, **kwargs):
    """flash_attn.flash_attn_qkvpacked_func: qkv [B, S, 3, H, D]; other arguments as flash_attn_func."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
                           max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
                           softmax_scale: Optional[float] = None, causal: bool = False,
                           window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                           alibi_slopes: Optional[Tensor] = None, deterministic: bool = False,
                           return_attn_probs: bool = False, block_table: Optional[Tensor] = None):
    """flash_attn.flash_attn_varlen_func: packed [total, H, D] with cu_seqlens i32 [B+1]. block_table is refused here."""
    _no_dropout(dropout_p)
    if block_table is not None:
        raise Unsupported("block_table: given, expected None: onchip.decode reads paged caches")
    o, lse = attention(q, k, v, causal=causal, window=window_size, softmax_scale=softmax_scale, softcap=softcap,
                       alibi_slopes=alibi_slopes, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                       max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, return_lse=True)
    return _flash_result(o, lse, return_attn_probs)


def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Optional[Tensor] = None,
                            v: Optional[Tensor] = None, rotary_cos: Optional[Tensor] = None,
                            rotary_sin: Optional[Tensor] = None, cache_seqlens=None,
                            cache_batch_idx: Optional[Tensor] = None, cache_leftpad: Optional[Tensor] = None,
                            block_table: Optional[Tensor] = None, softmax_scale: Optional[float] = None,
                            causal: bool = False, window_size: tuple[int, int] = (-1, -1), softcap: float = 0.0,
                            rotary_interleaved: bool = True, alibi_slopes: Optional[Tensor] = None, num_splits: int = 0,
                            return_softmax_lse: bool = False):
    """flash_attn.flash_attn_with_kvcache: appends k, v to the caches in place, then attends. No gradients.

    cache_seqlens: int or i32 [B], lengths before the append; without it the cache counts as full. cache_batch_idx and
    cache_leftpad are refused; num_splits is the plan's to choose.
    """
    for name, value in (("cache_batch_idx", cache_batch_idx), ("cache_leftpad", cache_leftpad)):
        if value is not None:
            raise Unsupported(f"{name}: given, expected None")
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k_cache, v_cache, k, v)):
        raise Unsupported("q, k, v: require gradients, expected none: decoding has no backward pass")
    if cache_seqlens is None:
        cache_seqlens = k_cache.shape[1] * (1 if block_table is None else block_table.shape[1])
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((q.shape[0],), cache_seqlens, dtype=torch.int32, device=q.device)
    q, k, v, k_cache, v_cache, rotary_cos, rotary_sin = (
        _plain(x) for x in (q, k, v, k_cache, v_cache, rotary_cos, rotary_sin))
    o, lse = _attention.decode(q, k_cache, v_cache, cache_seqlens, k_new=k, v_new=v, rotary_cos=rotary_cos,
                               rotary_sin=rotary_sin, rotary_interleaved=rotary_interleaved, page_table=block_table,
                               alibi_slopes=alibi_slopes, softmax_scale=softmax_scale, softcap=softcap, causal=causal,
                               window=window_size, return_lse=True)
    return (o, lse) if return_softmax_lse else o
