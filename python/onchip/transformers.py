"""onchip for Hugging Face Transformers: attn_implementation="onchip" after register()."""
from __future__ import annotations

from typing import Optional

from torch import Tensor

from . import torch as _torch
from ._errors import Unsupported

NAME = "onchip"


def _mask(*args, allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = True, **kwargs):
    """The model's whole mask (causal, windows, padding, cache) as bool [B, 1, Sq, Sk]: nothing is left implied."""
    from transformers.masking_utils import sdpa_mask

    return sdpa_mask(*args, allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **kwargs)


def _attention(module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Optional[Tensor],
               dropout: float = 0.0, scaling: Optional[float] = None, softcap: Optional[float] = None,
               is_causal: Optional[bool] = None, s_aux: Optional[Tensor] = None,
               position_bias: Optional[Tensor] = None, **kwargs):
    """query, key, value: [B, H, S, D]. Returns ([B, S, H, D], None). Without a mask, causal from the bottom right."""
    if dropout != 0.0:
        raise Unsupported(f"dropout: {dropout}, expected 0: attention here is exact")
    if kwargs.get("output_attentions"):
        raise Unsupported("output_attentions: True, expected False: no probabilities are stored")
    if position_bias is not None:
        raise Unsupported("position_bias: given, expected None")
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    mask = bias = None
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[2]]
        mask, bias = (None, attention_mask) if attention_mask.is_floating_point() else (attention_mask, None)
    elif kwargs.get("sliding_window") is not None:
        raise Unsupported("attention_mask: none given with sliding_window, expected the mask of this implementation")
    o = _torch.attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask=mask, bias=bias,
                         causal=causal and attention_mask is None, softmax_scale=scaling, softcap=softcap or 0.0,
                         sink=None if s_aux is None else s_aux.float())
    return o, None


def register() -> None:
    """Makes attn_implementation="onchip" known to Transformers (from_pretrained, from_config, set_attn_implementation)."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, _attention)
    AttentionMaskInterface.register(NAME, _mask)
