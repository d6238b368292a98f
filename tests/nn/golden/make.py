#!/usr/bin/env python3
"""tests/nn/golden/make.py: what PyTorch's layers compute, for tests/nn/golden_test.cpp.

  make.py FOLDER        (needs PyTorch 2.13; writes FOLDER/*.safetensors)

Each file is one call in float64: `layer.` and the names of a state dict; `in.`, `out.` and `up.` with the inputs, the
outputs and the gradients of some loss by the outputs; `grad.` and `din.` with the gradients by parameters and inputs."""
import json
import math
import pathlib
import struct
import sys

import torch
from torch import nn

DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.bool: "BOOL"}


def raw(tensor):
    tensor = tensor.detach().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def write(path, tensors):
    """A safetensors file: the length of the header, the header, the elements; wide dtypes first."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, elements = {"__metadata__": {"made_by": "PyTorch " + torch.__version__.split("+")[0]}}, b""
    for name in names:
        data = raw(tensors[name])
        header[name] = {"dtype": DTYPES[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [len(elements), len(elements) + len(data)]}
        elements += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + elements)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class Case:
    """One call: which of its inputs need gradients is said by their dtype."""

    def __init__(self, layer, call, inputs):
        inputs = {name: x.requires_grad_() if x.is_floating_point() and not name.startswith("mask") else x
                  for name, x in inputs.items()}
        outputs = call(layer, **inputs)
        ups = {name: randn(*y.shape) for name, y in outputs.items() if y.requires_grad and name != "weights"}
        torch.autograd.backward([outputs[name] for name in ups], list(ups.values()))
        self.tensors = {"layer." + name: x for name, x in layer.state_dict().items()}
        self.tensors |= {"in." + name: x for name, x in inputs.items()}
        self.tensors |= {"out." + name: y for name, y in outputs.items()}
        self.tensors |= {"up." + name: y for name, y in ups.items()}
        self.tensors |= {"grad." + name: x.grad for name, x in layer.named_parameters()}
        self.tensors |= {"din." + name: x.grad for name, x in inputs.items() if x.grad is not None}


def normal_parameters(layer, scale=0.5):
    """No zeros and ones, which would hide mistakes."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, scale)
    return layer.double()


def plain(layer, x):
    return {"y": layer(x)}


def recurrent(layer, x, lengths=None, h0=None):
    if lengths is not None:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = layer(packed, h0)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
    else:
        states, last = layer(x, h0)
    return {"all": states, "last": last}


def multi_head(layer, query, key=None, value=None, drop_keys=None, drop_pairs=None, mask_added=None):
    key = query if key is None else key
    value = key if value is None else value
    mask = drop_pairs if mask_added is None else mask_added.reshape(-1, *mask_added.shape[2:])
    y, weights = layer(query, key, value, key_padding_mask=drop_keys, attn_mask=mask, average_attn_weights=False)
    return {"y": y, "weights": weights}


def masked_softmax(scores, lengths):
    """The textbook's, for lengths of at least 1."""
    seen = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    return torch.softmax(scores.masked_fill(~seen, -1e6), dim=-1)


class AdditiveAttention(nn.Module):
    """The textbook's."""

    def __init__(self, query_width, key_width, hidden_width):
        super().__init__()
        self.W_q = nn.Linear(query_width, hidden_width, bias=False)
        self.W_k = nn.Linear(key_width, hidden_width, bias=False)
        self.w_v = nn.Linear(hidden_width, 1, bias=False)

    def forward(self, q, k, v, lengths):
        features = torch.tanh(self.W_q(q).unsqueeze(2) + self.W_k(k).unsqueeze(1))
        return torch.bmm(masked_softmax(self.w_v(features).squeeze(-1), lengths), v)


class DotProductAttention(nn.Module):
    """The textbook's."""

    def forward(self, q, k, v, lengths):
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])
        return torch.bmm(masked_softmax(scores, lengths), v)


def textbook(layer, q, k, v, lengths):
    return {"y": layer(q, k, v, lengths)}


class Tagger(nn.Module):
    """Layers inside of layers, for names with dots: what examples/load_from_pytorch.cpp loads."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 8, padding_idx=0)
        self.look = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.read = nn.GRU(8, 4, batch_first=True, bidirectional=True)
        self.decide = nn.Linear(8, 3)

    def forward(self, ids):
        x = self.words(ids)
        y, _ = self.look(x, x, x, key_padding_mask=ids == 0)
        states, _ = self.read(self.norm(x + y))
        return self.decide(states)


def attention(*arguments, **options):
    return normal_parameters(nn.MultiheadAttention(*arguments, batch_first=True, **options))


def unit(*arguments, **options):
    return normal_parameters(nn.GRU(*arguments, batch_first=True, **options))


def additive_case(batch, lengths):
    return Case(normal_parameters(AdditiveAttention(5, 3, 6)), textbook,
                {"q": randn(batch, 4, 5), "k": randn(batch, 6, 3), "v": randn(batch, 6, 4),
                 "lengths": torch.tensor(lengths, dtype=torch.int64)})


def dot_product_case(batch, lengths):
    return Case(DotProductAttention(), textbook,
                {"q": randn(batch, 4, 5), "k": randn(batch, 6, 5), "v": randn(batch, 6, 4),
                 "lengths": torch.tensor(lengths, dtype=torch.int64)})


CASES = {
    "linear": lambda: Case(normal_parameters(nn.Linear(5, 4)), plain, {"x": randn(2, 3, 5)}),
    "linear_without_bias": lambda: Case(normal_parameters(nn.Linear(5, 4, bias=False)), plain, {"x": randn(3, 5)}),
    "linear_empty_batch": lambda: Case(normal_parameters(nn.Linear(5, 4)), plain, {"x": randn(0, 3, 5)}),
    "embedding": lambda: Case(normal_parameters(nn.Embedding(7, 3, padding_idx=2)), plain,
                              {"x": torch.tensor([[6, 2, 0, 6], [2, 2, 5, 1]])}),
    "embedding_empty_batch": lambda: Case(normal_parameters(nn.Embedding(7, 3, padding_idx=2)), plain,
                                          {"x": torch.zeros(0, 4, dtype=torch.int64)}),
    "layer_norm": lambda: Case(normal_parameters(nn.LayerNorm(6)), plain, {"x": randn(2, 3, 6)}),
    "layer_norm_empty_batch": lambda: Case(normal_parameters(nn.LayerNorm(6)), plain, {"x": randn(0, 3, 6)}),
    "gru": lambda: Case(unit(3, 4), recurrent, {"x": randn(2, 5, 3)}),
    "gru_without_bias": lambda: Case(unit(3, 4, bias=False), recurrent, {"x": randn(2, 5, 3), "h0": randn(1, 2, 4)}),
    "gru_packed": lambda: Case(unit(3, 4, num_layers=2, bidirectional=True), recurrent,
                               {"x": randn(4, 5, 3), "h0": randn(4, 4, 4), "lengths": torch.tensor([3, 5, 1, 4])}),
    "gru_batch_of_one": lambda: Case(unit(3, 4, num_layers=2), recurrent, {"x": randn(1, 3, 3)}),
    "gru_empty_batch": lambda: Case(unit(3, 4, bidirectional=True), recurrent, {"x": randn(0, 3, 3)}),
    "gru_both_directions": lambda: Case(unit(3, 2, bidirectional=True), recurrent, {"x": randn(3, 4, 3)}),
    "heads_self": lambda: Case(attention(8, 2), multi_head, {"query": randn(2, 5, 8)}),
    "heads_without_bias": lambda: Case(attention(8, 4, bias=False), multi_head, {"query": randn(2, 5, 8)}),
    "heads_causal": lambda: Case(attention(8, 2), multi_head,
                                 {"query": randn(2, 5, 8),
                                  "drop_pairs": torch.ones(5, 5, dtype=torch.bool).triu(1)}),
    "heads_padding": lambda: Case(attention(8, 2), multi_head,
                                  {"query": randn(3, 4, 8), "key": randn(3, 5, 8),
                                   "drop_keys": torch.arange(5) >= torch.tensor([3, 5, 1])[:, None]}),
    "heads_added_mask": lambda: Case(attention(8, 2), multi_head,
                                     {"query": randn(2, 5, 8), "mask_added": randn(2, 2, 5, 5)}),
    "heads_three_inputs": lambda: Case(attention(8, 2), multi_head,
                                       {"query": randn(2, 4, 8), "key": randn(2, 6, 8), "value": randn(2, 6, 8)}),
    "heads_of_widths": lambda: Case(attention(8, 2, kdim=6, vdim=5), multi_head,
                                    {"query": randn(2, 4, 8), "key": randn(2, 6, 6), "value": randn(2, 6, 5)}),
    "heads_batch_of_one": lambda: Case(attention(6, 3), multi_head, {"query": randn(1, 4, 6)}),
    "heads_empty_batch": lambda: Case(attention(6, 3), multi_head, {"query": randn(0, 4, 6)}),
    "additive": lambda: additive_case(2, [4, 6]),
    "additive_batch_of_one": lambda: additive_case(1, [3]),
    "additive_empty_batch": lambda: additive_case(0, []),
    "dot_product": lambda: dot_product_case(2, [4, 6]),
    "dot_product_batch_of_one": lambda: dot_product_case(1, [3]),
    "dot_product_empty_batch": lambda: dot_product_case(0, []),
    "tagger": lambda: Case(normal_parameters(Tagger()), lambda layer, ids: {"y": layer(ids)},
                           {"ids": torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 0]])}),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for name, make in CASES.items():
        torch.manual_seed(1)
        write(folder / f"{name}.safetensors", make().tensors)
    # A state dict alone, as a user has it, and a copy in half precision.
    torch.manual_seed(1)
    state = normal_parameters(Tagger()).float().state_dict()
    write(folder / "tagger_state.safetensors", state)
    write(folder / "tagger_state_bfloat16.safetensors", {name: x.bfloat16() for name, x in state.items()})


if __name__ == "__main__":
    main()
