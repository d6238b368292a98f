# bench/peers/torch_peer.py: PyTorch's scaled_dot_product_attention on one thread, answering requests (see peer.py).
import torch
from torch.nn.functional import scaled_dot_product_attention

from peer import Problem, Way, serve

torch.set_num_threads(1)
torch.set_num_interop_threads(1)


def make_ways(problem: Problem) -> list[Way]:
    q, k, v = (torch.from_numpy(x) for x in (problem.q, problem.k, problem.v))
    given = problem.bias if problem.bias is not None else problem.keep
    mask = None if given is None else torch.from_numpy(given)
    result = {}

    def call():
        result["out"] = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=problem.is_causal)

    return [Way("scaled_dot_product_attention", call, lambda: result["out"].numpy())]


with torch.inference_mode():
    serve(make_ways)
