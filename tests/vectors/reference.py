#!/usr/bin/env python3
"""Attention in float64 NumPy, written from docs/semantics.md and from nothing else.

    reference.py make  SUITE.json DIR     write DIR/NAME.in.safetensors and DIR/NAME.ref.safetensors for every case
    reference.py check BINARY DIR [--backend B]   run `BINARY attend` on every case of DIR and compare

Needs Python 3 and NumPy alone. Exit status: 0 when every case holds, 1 otherwise, 77 without NumPy.
"""
import json, math, os, struct, subprocess, sys, tempfile
try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing (Debian: python3-numpy)"); sys.exit(77)

# ---------------------------------------------------------------- safetensors (bf16 and e4m3 included)
_NP = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "?"}
_FP8 = {"F8_E4M3": (4, 3), "F8_E5M2": (5, 2)}             # exponent and mantissa bits

def bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype("<u2")

def bf16_value(b):
    return (b.astype(np.uint32) << 16).view(np.float32)

def fp8_values(dtype):
    """The values of all 256 codes."""
    exponent_bits, mantissa_bits = _FP8[dtype]
    bias = 2 ** (exponent_bits - 1) - 1; code = np.arange(128); field = code >> mantissa_bits
    fraction = (code & (2 ** mantissa_bits - 1)) / 2 ** mantissa_bits
    value = np.where(field == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (field - bias))
    if dtype == "F8_E4M3":
        value[127] = np.nan
    else:
        value[124:] = [np.inf, np.nan, np.nan, np.nan]
    return np.concatenate([value, -value])

def fp8_codes(x, dtype):
    """Codes of the nearest finite values, of two equally near the even code; NaN becomes NaN."""
    value = fp8_values(dtype)[:128]; finite = np.nan_to_num(value, nan=np.inf); top = int(np.isfinite(finite).sum())
    x = np.asarray(x, np.float64); a = np.minimum(np.abs(np.nan_to_num(x)), finite[top - 1])
    high = np.clip(np.searchsorted(finite[:top], a), 1, top - 1); low = high - 1
    below, above = a - finite[low], finite[high] - a
    code = np.where((below < above) | ((below == above) & (low % 2 == 0)), low, high)
    return np.where(np.isnan(x), 127, code | (128 * np.signbit(x))).astype("u1")

def round_to(x, dtype):
    """x rounded to what `dtype` can hold."""
    if dtype == "F64":
        return np.asarray(x, np.float64)
    if dtype in _FP8:
        return fp8_values(dtype)[fp8_codes(x, dtype)]
    if dtype == "I8":
        return np.clip(np.rint(x), -127, 127)
    x = np.asarray(x, np.float32)
    if dtype == "F16":
        return x.astype(np.float16).astype(np.float32)
    return bf16_value(bf16_bits(x)).reshape(x.shape) if dtype == "BF16" else x

def save(path, tensors, meta=None):
    head, blobs, at = {}, [], 0
    if meta:
        head["__metadata__"] = {k: str(v) for k, v in meta.items()}
    for name, (dtype, a) in tensors.items():
        if dtype == "BF16":
            bits = bf16_bits(a)
        else:
            bits = fp8_codes(a, dtype) if dtype in _FP8 else np.ascontiguousarray(a, _NP[dtype])
        raw = bits.tobytes()
        head[name] = {"dtype": dtype, "shape": list(np.shape(a)), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw); at += len(raw)
    j = json.dumps(head).encode(); j += b" " * (-len(j) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(j)) + j + b"".join(blobs))

def header(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))

def load(path):
    raw = open(path, "rb").read()
    n = struct.unpack("<Q", raw[:8])[0]; head = header(path); out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        lo, hi = (8 + n + o for o in t["data_offsets"])
        if t["dtype"] == "BF16":
            a = bf16_value(np.frombuffer(raw[lo:hi], "<u2"))
        else:
            a = np.frombuffer(raw[lo:hi], _NP[t["dtype"]])
        out[name] = a.reshape(t["shape"])
    return out

# ---------------------------------------------------------------- the reference
def distance(sq, sk, top_left):
    """[sq, sk]: key position minus query position, bottom-right aligned unless top_left."""
    return np.arange(sk)[None, :] - (np.arange(sq)[:, None] + (0 if top_left else sk - sq))

def allowed(d, causal, window):
    """Boolean [sq, sk]: which keys a query may see."""
    left, right = window
    if causal:
        right = 0 if right < 0 else min(right, 0)
    ok = np.ones(d.shape, bool)
    if left >= 0:
        ok &= d >= -left
    if right >= 0:
        ok &= d <= right
    return ok

def one(q, k, v, *, scale, softcap, bias, slope, sink, d, ok, dout):
    """One (sequence, query head): q [sq,d], k [sk,d], v [sk,dv], all of one type, which is computed in. Returns a dict."""
    raw = scale * (q @ k.T)
    t = np.tanh(raw / softcap) if softcap > 0 else None
    s = softcap * t if softcap > 0 else raw
    if bias is not None:
        s = s + bias
    if slope is not None:
        s = s - slope * np.abs(d).astype(s.dtype)
    s = np.where(ok, s, -np.inf)
    m = np.max(s, axis=1, initial=-np.inf)
    if sink is not None:
        m = np.maximum(m, sink)
    m0 = np.where(np.isfinite(m), m, 0.0)
    e = np.exp(s - m0[:, None])
    l = e.sum(1) + (np.exp(sink - m0) if sink is not None else 0.0)
    with np.errstate(divide="ignore"):
        lse = np.where(l > 0, m0 + np.log(l), -np.inf)
    p = e / np.where(l > 0, l, 1.0)[:, None]
    r = {"o": p @ v, "lse": lse}
    if dout is not None:
        dp = dout @ v.T
        delta = (dout * r["o"]).sum(1)
        ds = p * (dp - delta[:, None])
        r["dbias"] = ds
        if sink is not None:
            ps = np.where(l > 0, np.exp(sink - m0) / np.where(l > 0, l, 1.0), 0.0)
            r["dsink"] = -(ps * delta).sum()
        draw = ds * (1 - t * t) if softcap > 0 else ds
        r["dv"], r["dq"], r["dk"] = p.T @ dout, scale * (draw @ k), scale * (draw.T @ q)
    return r

def scales(scale, k, g, b, rows):
    """Scale of each of a sequence's keys for KV head g: [1], [Hk], [B, Hk] or per token as `rows` selects it."""
    if scale.shape == k.shape[:-1]:
        return rows(scale)[:, g]
    return scale[b, g] if scale.ndim == 2 else scale[g if len(scale) > 1 else 0]

def attention(x, *, causal=False, window=(-1, -1), scale=None, softcap=0.0, top_left=False, real=np.float64):
    """x: dict of arrays named as in docs/semantics.md, batched ([B,S,H,D]), packed (cu_seqlens_*) or paged (page_table)."""
    f = {n: np.asarray(a, real) if a.dtype.kind == "f" else a for n, a in x.items()}
    q, k, v = f["q"], f["k"], f["v"]
    scale = real(1 / math.sqrt(q.shape[-1]) if scale is None else scale); softcap = real(softcap)
    packed = "cu_seqlens_q" in f
    hq, hk, dv = q.shape[-2], k.shape[-2], v.shape[-1]
    nb = len(f["cu_seqlens_q"]) - 1 if packed else q.shape[0]
    out = {"o": np.zeros(q.shape[:-1] + (dv,)), "lse": np.full((hq, q.shape[0]) if packed else (nb, hq, q.shape[1]), -np.inf)}
    grads = "dout" in f
    if grads:
        out.update(dq=np.zeros(q.shape), dk=np.zeros(k.shape), dv=np.zeros(v.shape))
        if "sink" in f:
            out["dsink"] = np.zeros(hq)
        if "bias" in f:
            out["dbias"] = np.zeros(f["bias"].shape)
    for b in range(nb):
        qs = slice(*f["cu_seqlens_q"][b:b + 2]) if packed else None
        qb = q[qs] if packed else q[b]
        if "page_table" in f:                               # where the keys of this sequence are: an index of k and v
            page = k.shape[1]; cap = f["page_table"].shape[1] * page; j = np.arange(cap); used = int(f.get("seqused_k", [cap] * nb)[b])
            at = (f["page_table"][b][j[:used] // page], j[:used] % page)
        else:
            at = slice(*f["cu_seqlens_k"][b:b + 2]) if "cu_seqlens_k" in f else b
        rows = lambda c: c[at]
        sk = int(f["seqused_k"][b]) if "seqused_k" in f else len(rows(k))
        d = distance(len(qb), sk, top_left)
        for h in range(hq):
            g = h // (hq // hk)
            ok = allowed(d, causal, window)
            kb, vb = (rows(c)[:sk, g] for c in (k, v))
            if "k_scale" in f:
                kb = kb * np.broadcast_to(np.reshape(scales(f["k_scale"], k, g, b, rows), (-1, 1)), (len(rows(k)), 1))[:sk]
                vb = vb * np.broadcast_to(np.reshape(scales(f["v_scale"], v, g, b, rows), (-1, 1)), (len(rows(v)), 1))[:sk]
            if "mask" in f:
                m = f["mask"]; ok = ok & m[min(b, m.shape[0] - 1), min(h, m.shape[1] - 1)][:len(qb), :sk].astype(bool)
            bias = None
            if "bias" in f:
                a = f["bias"]; bi, hi = min(b, a.shape[0] - 1), min(h, a.shape[1] - 1); bias = a[bi, hi][:len(qb), :sk]
            slope = None
            if "alibi_slopes" in f:
                a = f["alibi_slopes"]; slope = a[b, h] if a.ndim == 2 else a[h]
            do = (f["dout"][qs][:, h] if packed else f["dout"][b][:, h]) if grads else None
            r = one(qb[:, h], kb, vb, scale=scale, softcap=softcap, bias=bias, slope=slope,
                    sink=f["sink"][h] if "sink" in f else None, d=d, ok=ok, dout=do)
            if packed:
                out["o"][qs, h] = r["o"]; out["lse"][h, qs] = r["lse"]
            else:
                out["o"][b, :, h] = r["o"]; out["lse"][b, h] = r["lse"]
            if grads:
                out["dq"][(qs, h) if packed else (b, slice(None), h)] = r["dq"]
                for n in ("dk", "dv"):                      # a page may appear more than once: its gradients add up
                    if "page_table" in f:
                        np.add.at(out[n], (*at, g), r[n])
                    else:
                        out[n][at][:sk, g] += r[n]
                if "dsink" in out:
                    out["dsink"][h] += r["dsink"]
                if "dbias" in out:
                    out["dbias"][bi, hi, :len(qb), :sk] += r["dbias"]
    return out

# ---------------------------------------------------------------- suites
def build(c):
    """The input tensors of one case of a suite, and the options of `attend`."""
    g = np.random.default_rng(c["seed"]); dt = c.get("dtype", "F32")
    B, Sq, Sk, Hq, Hk, D = (c[n] for n in ("B", "Sq", "Sk", "Hq", "Hk", "D")); Dv = c.get("Dv", D)
    r = lambda *s, amp=1.0: round_to(g.standard_normal(s) * amp, dt)
    x, amp = {}, c.get("amp", 1.0)
    kv = c.get("kv", dt)                                    # I8, F8_E4M3 or F8_E5M2: quantised keys and values
    unit = 40.0 if kv == "I8" else 1.0
    rk = lambda *s: r(*s) if kv == dt else round_to(g.standard_normal(s) * unit, kv)
    if "lens_q" in c:                                       # packed
        cq = np.concatenate([[0], np.cumsum(c["lens_q"])]).astype(np.int32)
        ck = np.concatenate([[0], np.cumsum(c["lens_k"])]).astype(np.int32)
        x = dict(q=(dt, r(cq[-1], Hq, D, amp=amp)), k=(kv, rk(ck[-1], Hk, D)), v=(kv, rk(ck[-1], Hk, Dv)),
                 cu_seqlens_q=("I32", cq), cu_seqlens_k=("I32", ck))
    elif "page" in c:
        n = math.ceil(Sk / c["page"]); total = B * n + 3
        x = dict(q=(dt, r(B, Sq, Hq, D, amp=amp)), k=(kv, rk(total, c["page"], Hk, D)), v=(kv, rk(total, c["page"], Hk, Dv)),
                 page_table=("I32", g.permutation(total)[:B * n].reshape(B, n).astype(np.int32)))
        if "share" in c:                                    # the first pages are the same in every sequence
            x["page_table"][1][:, :c["share"]] = x["page_table"][1][0, :c["share"]]
    else:
        x = dict(q=(dt, r(B, Sq, Hq, D, amp=amp)), k=(kv, rk(B, Sk, Hk, D)), v=(kv, rk(B, Sk, Hk, Dv)))
    if "used" in c:
        u = np.array(c["used"], np.int32); x["seqused_k"] = ("I32", u)
        if c.get("poison"):                                 # what lies beyond a sequence's end must not matter
            for n in ("k", "v"):
                a = x[n][1].copy()
                if "page" in c:
                    t = x["page_table"][1]; keep = np.zeros(a.shape[:2], bool)
                    for b in range(B):
                        for j in range(u[b]):
                            keep[t[b, j // c["page"]], j % c["page"]] = True
                    a[~keep] = np.nan
                else:
                    for b in range(B):
                        a[b, u[b]:] = np.nan
                x[n] = (kv, a)
    if c.get("bias"):
        a = g.standard_normal(tuple(c["bias"]) + (Sq, Sk)).astype(np.float32)
        if c.get("bias_inf"):
            a[g.random(a.shape) < 0.3] = -np.inf
        x["bias"] = ("F32", a)
    if c.get("mask"):
        a = g.random(tuple(c["mask"]) + (Sq, Sk)) < c.get("keep", 0.6)
        if c.get("dead_row"):
            a[..., ::3, :] = False
        x["mask"] = ("BOOL", a)
    if c.get("alibi"):
        x["alibi_slopes"] = ("F32", (2.0 ** (-8.0 * (np.arange(Hq) + 1) / Hq)).astype(np.float32))
    if c.get("sink"):
        x["sink"] = ("F32", g.standard_normal(Hq).astype(np.float32))
    if c.get("grad"):
        x["dout"] = (dt, round_to(g.standard_normal(x["q"][1].shape[:-1] + (Dv,)), dt))
    if "scales" in c:                                       # which granularity
        shape = {"tensor": (1,), "head": (Hk,), "batch_head": (B, Hk), "token": x["k"][1].shape[:-1]}[c["scales"]]
        for n in ("k_scale", "v_scale"):
            x[n] = ("F32", ((0.5 + g.random(shape)) / unit).astype(np.float32))
    opt = {k: c[k] for k in ("causal", "window", "scale", "softcap", "top_left") if k in c}
    return x, opt

def options(opt):
    a = []
    if opt.get("causal"):
        a += ["--causal"]
    if opt.get("top_left"):
        a += ["--top-left"]
    if "window" in opt:
        a += ["--window", "{},{}".format(*opt["window"])]
    for n in ("scale", "softcap"):
        if n in opt:
            a += [f"--{n}", repr(float(opt[n]))]
    return a

def make(suite, where):
    os.makedirs(where, exist_ok=True)
    for c in json.load(open(suite)):
        x, opt = build(c)
        ref = attention({n: a for n, (_, a) in x.items()}, **{k: tuple(v) if k == "window" else v for k, v in opt.items()})
        save(f"{where}/{c['name']}.in.safetensors", x, {"options": json.dumps(opt)})
        f32 = attention({n: a for n, (_, a) in x.items()}, real=np.float32, **{k: tuple(v) if k == "window" else v for k, v in opt.items()})
        std = {n: float(np.max(np.abs(f32[n][fin] - a[fin]), initial=0.0)) for n, a in ref.items() for fin in [np.isfinite(a)]}
        save(f"{where}/{c['name']}.ref.safetensors", {n: ("F64", a) for n, a in ref.items()}, {"standard_error": json.dumps(std)})

# Relative to 1 + |value|: one unit in the last place of what the output is stored in, with room for the roundings that
# a tiled kernel makes. Where standard attention in f32 has a larger error (large logits), twice that error.
TOL = {"F64": 1e-11, "F32": 2e-5, "F16": 2e-3, "BF16": 1.6e-2, "F8_E4M3": 0.1}

def check(binary, where, extra=()):
    bad = n = 0
    for f in sorted(os.listdir(where)):
        if not f.endswith(".in.safetensors"):
            continue
        n += 1; path = f"{where}/{f}"
        head = header(path)
        opt = json.loads(head["__metadata__"]["options"]); tol = TOL[head["q"]["dtype"]]
        with tempfile.TemporaryDirectory() as d:
            p = subprocess.run([binary, "attend", path, "-o", f"{d}/o.safetensors", *options(opt), *extra], capture_output=True, text=True, timeout=300)
            if p.returncode:
                bad += 1; print(f"FAIL {f}: exit {p.returncode}: {p.stderr.strip()[:160]}"); continue
            got = load(f"{d}/o.safetensors")
        ref_path = path.replace(".in.", ".ref."); ref = load(ref_path)
        std = json.loads(header(ref_path)["__metadata__"]["standard_error"])
        for name, r in ref.items():
            if name not in got:
                bad += 1; print(f"FAIL {f}: no tensor '{name}'"); break
            a, r = got[name].astype(np.float64), r.astype(np.float64)
            if a.shape != r.shape:
                bad += 1; print(f"FAIL {f}: {name} has shape {a.shape}, wanted {r.shape}"); break
            fin = np.isfinite(r)
            if not np.array_equal(np.where(fin, 0, r), np.where(fin, 0, a)):
                bad += 1; print(f"FAIL {f}: {name}: infinities or NaN differ"); break
            t = min(tol, 2e-3) if name == "lse" else tol
            if name in ("dsink", "dbias"):                  # have the types of sink and bias: f32 beside an f64 q
                t = max(t, 2.0 ** -23)
            err, size = np.abs(a[fin] - r[fin]), np.abs(r[fin])
            allowed = np.maximum(t * (1 + size), 0.0 if tol < 1e-6 else 2 * std[name])
            if not np.all(err <= allowed):
                worst = np.argmax(err / allowed)
                bad += 1; print(f"FAIL {f}: {name}: error {err[worst]:.3g}, allowed {allowed[worst]:.3g}"); break
    print(f"{n - bad} passed, {bad} failed")
    return 1 if bad or not n else 0

if __name__ == "__main__":
    if len(sys.argv) >= 4 and sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3])
    elif len(sys.argv) >= 4 and sys.argv[1] == "check":
        sys.exit(check(sys.argv[2], sys.argv[3], sys.argv[4:]))
    else:
        sys.exit(__doc__)
