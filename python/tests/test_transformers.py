"""attn_implementation="onchip" beside eager, on small models with random weights."""
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import onchip  # noqa: E402
import onchip.transformers  # noqa: E402

onchip.transformers.register()
SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)
MODELS = {
    "Llama": {}, "Mistral": {"sliding_window": 4},
    "Gemma2": {"sliding_window": 4, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
    "GptOss": {"sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1},
}


@pytest.mark.parametrize("name", MODELS)
def test_causal_models(name):
    config = getattr(transformers, name + "Config")(**SMALL, **MODELS[name])
    torch.manual_seed(5)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    ids = torch.randint(3, 64, (2, 9))
    padding = torch.ones_like(ids)
    padding[0, :3] = 0
    results = {}
    for implementation in ("eager", "onchip"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        with onchip.record() as calls:
            logits = model(ids, attention_mask=padding).logits[padding.bool()]
            logits.square().mean().backward()
            tokens = model.generate(ids, attention_mask=padding, max_new_tokens=6, do_sample=False)
        assert bool(calls) == (implementation == "onchip")
        results[implementation] = logits.detach(), tokens, [p.grad.clone() for p in model.parameters() if p.grad is not None]
    (a, tokens_a, grads_a), (b, tokens_b, grads_b) = results["eager"], results["onchip"]
    torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)
    assert (tokens_a == tokens_b).all()
    for x, y in zip(grads_b, grads_a):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


def test_bert():
    config = transformers.BertConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    torch.manual_seed(5)
    model = transformers.BertModel(config).eval()
    ids, padding = torch.randint(3, 64, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    padding[1, 5:] = 0
    results = []
    for implementation in ("eager", "onchip"):
        model.set_attn_implementation(implementation)
        results.append(model(ids, attention_mask=padding).last_hidden_state[padding.bool()])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
