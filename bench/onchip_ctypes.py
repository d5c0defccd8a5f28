"""onchip's C interface for benchmark programs: calls on the memory of PyTorch tensors, through ctypes."""
import ctypes
from ctypes import POINTER, Structure, byref, c_char, c_char_p, c_double, c_int32, c_int64, c_size_t, c_void_p

import torch

DTYPES = {torch.float64: 0, torch.float32: 1, torch.bfloat16: 2, torch.float16: 3, torch.float8_e4m3fn: 4,
          torch.float8_e5m2: 5, torch.int8: 6, torch.int32: 7, torch.bool: 8}
BACKENDS = {"auto": 0, "cpu": 1, "standard": 2, "cuda": 3}
FORWARD, BACKWARD = 0, 1


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int32), ("rank", c_int32), ("shape", c_int64 * 4), ("stride", c_int64 * 4)]


class Attention(Structure):
    _fields_ = (
        [("struct_size", c_size_t)]
        + [(name, Tensor) for name in ("q k v bias mask alibi_slopes sink cu_seqlens_q cu_seqlens_k seqused_k page_table "
                                       "k_scale v_scale o lse dout dq dk dv dbias dsink").split()]
        + [("softmax_scale", c_double), ("softcap", c_double), ("window_left", c_int64), ("window_right", c_int64),
           ("has_softmax_scale", c_int32), ("causal", c_int32), ("alignment", c_int32), ("backend", c_int32),
           ("num_threads", c_int32), ("allow_tf32", c_int32), ("at_least", c_char_p), ("stream", c_void_p),
           ("max_seqlen_q", c_int64), ("max_seqlen_k", c_int64), ("device", c_int32), ("batch_invariant", c_int32)])


class PlanInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("workspace_bytes", c_size_t), ("implementation", c_char * 64),
                ("pass_", c_int32), ("backend", c_int32), ("num_threads", c_int32), ("num_rejections", c_int32),
                ("tile_m", c_int64), ("tile_n", c_int64), ("num_splits", c_int64), ("split_size", c_int64),
                ("flops", c_double), ("main_memory_read_bytes", c_double), ("main_memory_write_bytes", c_double)]


def view(tensor):
    """A PyTorch tensor of up to 4 dimensions as the C interface takes it."""
    out = Tensor(tensor.data_ptr(), DTYPES[tensor.dtype], tensor.dim())
    out.shape[: tensor.dim()] = tensor.shape
    out.stride[: tensor.dim()] = tensor.stride()
    return out


class Call:
    """One planned call, ready to be repeated. Tensors in [B, S, H, D] (any strides), lse in [B, H, S]."""

    def __init__(self, library, pass_, tensors, *, causal=False, backend="auto", num_threads=0, allow_tf32=False,
                 at_least=""):
        self.run_function = library.onchip_forward if pass_ == FORWARD else library.onchip_backward
        self.library = library
        self.tensors = tensors  # kept alive
        self.problem = Attention(struct_size=ctypes.sizeof(Attention), window_left=-1, window_right=-1,
                                 causal=int(causal), backend=BACKENDS[backend], num_threads=num_threads,
                                 allow_tf32=int(allow_tf32), at_least=at_least.encode(), device=tensors["q"].device.index if tensors["q"].is_cuda else -1)
        for name, tensor in tensors.items():
            setattr(self.problem, name, view(tensor))
        self.info = PlanInfo(struct_size=ctypes.sizeof(PlanInfo))
        self._check(library.onchip_plan(byref(self.problem), pass_, byref(self.info)))
        self.workspace = torch.empty(self.info.workspace_bytes + 64, dtype=torch.uint8, device=tensors["q"].device)
        self.aligned = -(-self.workspace.data_ptr() // 64) * 64

    def implementation(self):
        """The name of what runs."""
        return self.info.implementation.decode()

    def _check(self, status):
        if status:
            raise RuntimeError(self.library.onchip_last_error().decode())

    def __call__(self):
        if self.tensors["q"].is_cuda:
            self.problem.stream = torch.cuda.current_stream().cuda_stream
        self._check(self.run_function(byref(self.problem), c_void_p(self.aligned), c_size_t(self.info.workspace_bytes), None))


def load(path):
    library = ctypes.CDLL(path)
    library.onchip_last_error.restype = c_char_p
    library.onchip_plan.argtypes = [POINTER(Attention), c_int32, POINTER(PlanInfo)]
    return library
