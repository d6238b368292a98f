# bench/peers/torch_peer.py: PyTorch on one thread, answering requests (see peer.py).
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from peer import Problem, Way, serve

torch.set_num_threads(1)
torch.set_num_interop_threads(1)


def make_ways(problem: Problem) -> list[Way]:
    q, k, v = (torch.from_numpy(x) for x in (problem.q, problem.k, problem.v))
    given = problem.bias if problem.bias is not None else problem.keep
    mask = None if given is None else torch.from_numpy(given)
    result = {}

    @torch.inference_mode()
    def call():
        result["out"] = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=problem.is_causal)

    return [Way("scaled_dot_product_attention", call, lambda: result["out"].numpy())]


class AdditiveAttention(nn.Module):
    """As in Dive into Deep Learning, without dropout and lengths."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.W_q = nn.Linear(width, hidden, bias=False)
        self.W_k = nn.Linear(width, hidden, bias=False)
        self.w_v = nn.Linear(hidden, 1, bias=False)

    def forward(self, queries, keys, values):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        weights = torch.softmax(self.w_v(features).squeeze(-1), dim=-1)
        return torch.bmm(weights, values)


class AdditiveHeads(nn.Module):
    """The textbook's multi-head attention, heads folded into the batch, with its additive attention inside."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(width, width) for _ in range(4))
        self.attention = AdditiveAttention(width // heads, width // heads)

    def fold(self, x):
        B, T, width = x.shape
        return x.reshape(B, T, self.heads, -1).permute(0, 2, 1, 3).reshape(B * self.heads, T, -1)

    def forward(self, x):
        out = self.attention(self.fold(self.W_q(x)), self.fold(self.W_k(x)), self.fold(self.W_v(x)))
        B, T, width = x.shape
        return self.W_o(out.reshape(B, self.heads, T, -1).permute(0, 2, 1, 3).reshape(B, T, width))


def training_step(name: str, function, inputs: list, parameters: list, backward: bool = True) -> list[Way]:
    """One step: outputs, and the gradients of all inputs and parameters for an upstream gradient."""
    leaves = [x.requires_grad_(backward) for x in inputs] + parameters
    upstream = torch.randn_like(function(*inputs).detach())

    def call():
        if not backward:
            with torch.inference_mode():
                function(*inputs)
            return
        for leaf in leaves:
            leaf.grad = None
        function(*inputs).backward(upstream)

    call()
    if backward and not all(torch.isfinite(leaf.grad).all() for leaf in leaves):
        raise RuntimeError(f"{name}: a gradient is not finite")
    return [Way(name, call, lambda: None)]


def make_training(case: str, B: int, H: int, T: int, D: int) -> list[Way]:
    torch.manual_seed(1)
    if case == "mha_additive":
        layer = AdditiveHeads(D, H)
        return training_step("the textbook's code", layer, [torch.randn(B, T, D)], list(layer.parameters()))
    if case.startswith("mha"):
        layer = nn.MultiheadAttention(D, H, batch_first=True)
        train = case == "mha_train"
        layer.train(train)
        return training_step(
            "nn.MultiheadAttention",
            lambda x: layer(x, x, x, need_weights=False)[0],
            [torch.randn(B, T, D)],
            list(layer.parameters()),
            train,
        )
    if case == "gru":
        layer = nn.GRU(256, 512, batch_first=True)
        return training_step("nn.GRU", lambda x: layer(x)[0], [torch.randn(64, 20, 256)], list(layer.parameters()))
    if case == "linear":
        layer = nn.Linear(256, 4372)
        return training_step("nn.Linear", layer, [torch.randn(900, 256)], list(layer.parameters()))
    if case.startswith("additive"):
        layer = AdditiveAttention(64, D)
        inputs = [torch.randn(H, T, 64), torch.randn(H, 4 * T, 64), torch.randn(H, 4 * T, 64)]
        return training_step("the textbook's module", layer, inputs, list(layer.parameters()), case == "additive")
    inputs = [torch.randn(1, H, T, D) for _ in range(3)]
    causal = case == "causal"
    return training_step(
        "scaled_dot_product_attention",
        lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal),
        inputs,
        [],
    )


serve(make_ways, make_training)
