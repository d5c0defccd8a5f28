"""attention, backward, decode, merge and explain over arrays of any library."""
from __future__ import annotations

import contextlib
import json as _json
from typing import Any, Iterator, NamedTuple, Sequence

from . import _core
from ._arrays import current_stream, empty, is_double, is_e4m3
from ._errors import InvalidArgument

_BACKENDS = {"auto": 0, "cpu": 1, "standard": 2, "cuda": 3}
_TOP_LEFT = {"bottom_right": False, "top_left": True}
_recorders: list[list[tuple[str, str]]] = []


@contextlib.contextmanager
def record() -> Iterator[list[tuple[str, str]]]:
    """Collects (what, implementation) of every call that ran in this process inside the block, on any thread.

    >>> with onchip.record() as calls:
    ...     onchip.attention(q, k, v)
    >>> calls
    [('forward', 'cpu_forward')]
    """
    calls: list[tuple[str, str]] = []
    _recorders.append(calls)
    try:
        yield calls
    finally:
        _recorders[:] = [recorder for recorder in _recorders if recorder is not calls]


def _ran(what: str, implementation: str) -> None:
    for recorder in _recorders:
        recorder.append((what, implementation))


def _choice(name: str, value: Any, choices: dict) -> Any:
    try:
        return choices[value]
    except (KeyError, TypeError):
        raise InvalidArgument(f"{name}: {value!r}, expected one of {', '.join(choices)}") from None


def _options(q: Any, *, causal: bool = False, window: tuple[int, int] = (-1, -1), softmax_scale: float | None = None,
             softcap: float = 0.0, alignment: str = "bottom_right", backend: str = "auto", at_least: str = "",
             num_threads: int = 0, allow_tf32: bool = False, batch_invariant: bool = False, max_seqlen_q: int = 0,
             max_seqlen_k: int = 0, stream: int | None = None, rotary_interleaved: bool = False) -> Any:
    if len(window) != 2:
        raise InvalidArgument(f"window: {window!r}, expected (left, right)")
    return _core.Options(softmax_scale, softcap, causal, window[0], window[1], _choice("alignment", alignment, _TOP_LEFT),
                         _choice("backend", backend, _BACKENDS), at_least, num_threads, allow_tf32, batch_invariant,
                         max_seqlen_q, max_seqlen_k, current_stream(q) if stream is None else stream, rotary_interleaved)


def _rank(name: str, array: Any) -> tuple[int, ...]:
    shape = tuple(array.shape)
    if len(shape) not in (3, 4):
        raise InvalidArgument(f"{name}: {len(shape)} dimensions, expected 4, or 3 where sequences are packed")
    return shape


def _outputs(q: Any, v: Any, out: Any, lse: Any) -> tuple[Any, Any]:
    """o as q with the last dimension of v, and lse."""
    shape, v_shape = _rank("q", q), _rank("v", v)
    if out is None:
        out = empty(q, (*shape[:-1], v_shape[-1]), "bfloat16" if is_e4m3(q) else None)
    if lse is None:
        lse_shape = (shape[1], shape[0]) if len(shape) == 3 else (shape[0], shape[2], shape[1])
        lse = empty(q, lse_shape, "float64" if is_double(q) else "float32")
    return out, lse


def attention(q: Any, k: Any, v: Any, *, causal: bool = False, window: tuple[int, int] = (-1, -1),
              softmax_scale: float | None = None, softcap: float = 0.0, bias: Any = None, mask: Any = None,
              alibi_slopes: Any = None, sink: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
              seqused_k: Any = None, page_table: Any = None, k_scale: Any = None, v_scale: Any = None, out: Any = None,
              lse: Any = None, return_lse: bool = False, **how: Any) -> Any:
    """Exact attention. Returns o, or (o, lse) with return_lse.

    Arrays (docs/semantics.md), of any strides whose last is 1:
      q             [B, Sq, Hq, D] or packed [total_q, Hq, D]; f64, f32, bf16, f16, e4m3
      k, v          [B, Sk, Hk, D] and [.., Dv], packed [total_k, Hk, D] or pages [pages, page_size, Hk, D]; as q, or
                    int8, e4m3, e5m2 with k_scale, v_scale f32 [1], [Hk], [B, Hk] or per token
      bias, mask    [1|B, 1|Hq, Sq, Sk]: added to the score; bool, true = may attend
      alibi_slopes  f32 [Hq] or [B, Hq];  sink: f32 [Hq], one more logit in each denominator
      cu_seqlens_q, cu_seqlens_k  i32 [B+1];  seqused_k: i32 [B];  page_table: i32 [B, max_pages]
      out, lse      where results go: as q with last dimension Dv; f32 (f64 for f64) [B, Hq, Sq] or [Hq, total_q]
    Numbers: causal and window=(left, right) count from the bottom right (alignment="top_left" for PyTorch's is_causal);
      softmax_scale defaults to 1/√D; softcap 0 is none.
    How: backend "auto", "cpu", "standard", "cuda"; at_least: refuse implementations below the named one; num_threads;
      allow_tf32; batch_invariant; max_seqlen_q, max_seqlen_k (device memory); stream: a CUstream, default the
      library's current one.

    Raises InvalidArgument (a ValueError) and Unsupported (a NotImplementedError), both onchip.Error.
    """
    out, lse = _outputs(q, v, out, lse)
    tensors = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "alibi_slopes": alibi_slopes, "sink": sink,
               "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k,
               "page_table": page_table, "k_scale": k_scale, "v_scale": v_scale, "o": out, "lse": lse}
    options = _options(q, causal=causal, window=window, softmax_scale=softmax_scale, softcap=softcap, **how)
    _ran("forward", _core.forward(tensors, options))
    return (out, lse) if return_lse else out


class Gradients(NamedTuple):
    """Of each input, None where it was not there or not asked for."""
    dq: Any
    dk: Any
    dv: Any
    dbias: Any = None
    dsink: Any = None


def backward(dout: Any, q: Any, k: Any, v: Any, o: Any, lse: Any, *, bias: Any = None, sink: Any = None,
             wanted: Sequence[str] = ("dq", "dk", "dv", "dbias", "dsink"), mask: Any = None, alibi_slopes: Any = None,
             cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, seqused_k: Any = None, page_table: Any = None,
             k_scale: Any = None, v_scale: Any = None, **options: Any) -> Gradients:
    """Gradients of the inputs from o, lse and dout (as o). Other arguments as in attention().

    Raises as attention(); Unsupported where no implementation has the backward pass of the problem.
    """
    sources = {"dq": q, "dk": k, "dv": v, "dbias": bias, "dsink": sink}
    grads = {name: empty(source, tuple(source.shape)) for name, source in sources.items()
             if source is not None and name in wanted}
    tensors = {"q": q, "k": k, "v": v, "bias": bias, "mask": mask, "alibi_slopes": alibi_slopes, "sink": sink,
               "cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "seqused_k": seqused_k,
               "page_table": page_table, "k_scale": k_scale, "v_scale": v_scale, "o": o, "lse": lse, "dout": dout, **grads}
    _ran("backward", _core.backward(tensors, _options(q, **options)))
    return Gradients(*(grads.get(name) for name in sources))


def decode(q: Any, k_cache: Any, v_cache: Any, seqused_k: Any, *, k_new: Any = None, v_new: Any = None,
           rotary_cos: Any = None, rotary_sin: Any = None, rotary_interleaved: bool = False, page_table: Any = None,
           alibi_slopes: Any = None, sink: Any = None, bias: Any = None, mask: Any = None, cu_seqlens_q: Any = None,
           k_scale: Any = None, v_scale: Any = None, out: Any = None, lse: Any = None, return_lse: bool = False,
           **options: Any) -> Any:
    """One step of generation: appends k_new, v_new to the cache in place, then attends to seqused_k + Snew keys.

    q: [B, Sq, Hq, D]; k_cache, v_cache: [B, Sk, Hk, D] or pages with page_table; seqused_k: i32 [B], lengths before the
    append, which stay as they are; k_new, v_new: [B, Snew, Hk, D], type of q; rotary_cos, rotary_sin:
    [max_position, R/2]. The rest, and what is raised, as in attention(). Returns o, or (o, lse).
    """
    out, lse = _outputs(q, v_cache, out, lse)
    tensors = {"q": q, "k": k_cache, "v": v_cache, "seqused_k": seqused_k, "k_new": k_new, "v_new": v_new,
               "rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "page_table": page_table,
               "alibi_slopes": alibi_slopes, "sink": sink, "bias": bias, "mask": mask, "cu_seqlens_q": cu_seqlens_q,
               "k_scale": k_scale, "v_scale": v_scale, "o": out, "lse": lse}
    _ran("decode", _core.decode(tensors, _options(q, rotary_interleaved=rotary_interleaved, **options)))
    return (out, lse) if return_lse else out


def merge(o_parts: Sequence[Any], lse_parts: Sequence[Any], *, out: Any = None, lse: Any = None,
          stream: int | None = None) -> tuple[Any, Any]:
    """Merges results over disjoint sets of keys. o parts: [B, S, H, D] or [T, H, D]; lse parts: [B, H, S] or [H, T].

    Returns (o, lse), of the types of the first parts. Raises as attention().
    """
    if not o_parts or not lse_parts:
        raise InvalidArgument(f"o_parts, lse_parts: {len(o_parts)} and {len(lse_parts)} of them, expected at least 1")
    first = o_parts[0]
    out = empty(first, tuple(first.shape)) if out is None else out
    lse = empty(lse_parts[0], tuple(lse_parts[0].shape)) if lse is None else lse
    _core.merge(list(o_parts), list(lse_parts), out, lse, current_stream(first) if stream is None else stream)
    _ran("merge", "merge")
    return out, lse


def explain(q: Any, k: Any, v: Any, *, what: str = "forward", json: bool = False, **arguments: Any) -> Any:
    """Which implementation would run, and why no other: text, or with json a dict (docs/explain.md).

    what: "forward", "backward" or "decode"; arguments as of attention(), decode(). Nothing is computed. Raises as
    attention().
    """
    if what not in ("forward", "backward", "decode"):
        raise InvalidArgument(f"what: {what!r}, expected forward, backward or decode")
    known = _options.__kwdefaults__
    options = {name: arguments.pop(name) for name in list(arguments) if name in known}
    o, lse = _outputs(q, v, None, None)
    tensors = {"q": q, "k": k, "v": v, "o": o, "lse": lse, **arguments}
    if what == "backward":
        tensors.update(dout=o, dq=empty(q, tuple(q.shape)), dk=empty(k, tuple(k.shape)), dv=empty(v, tuple(v.shape)))
    text = _core.explain(what, tensors, _options(q, **options), json)
    return _json.loads(text) if json else text
