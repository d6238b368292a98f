# bench/peers/onnxruntime_peer.py: ONNX Runtime's ways to attention on one thread, answering requests (see peer.py).
#
#   Attention           the standard's operator (opset 23); [B, H, T, D]
#   MultiHeadAttention  Microsoft's operator; [B, T, H * D]
#   MatMul              two matrix products with a Softmax between them, keys transposed beforehand; [B, H, T, D]
from typing import Callable

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from peer import Problem, Way, serve


def make_session(nodes: list, inputs: dict[str, np.ndarray]) -> onnxruntime.InferenceSession:
    def info(name, x):
        return helper.make_tensor_value_info(name, TensorProto.BOOL if x.dtype == bool else TensorProto.FLOAT, x.shape)

    graph = helper.make_graph(
        nodes,
        "attention",
        [info(name, x) for name, x in inputs.items()],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def make_way(name: str, nodes: list, inputs: dict[str, np.ndarray], out_shape: tuple, to_heads: Callable) -> Way:
    """Inputs and output are bound once, so that a call copies nothing."""
    session = make_session(nodes, inputs)
    values = {key: onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(x)) for key, x in inputs.items()}
    output = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(out_shape, np.float32))
    binding = session.io_binding()
    for key, value in values.items():
        binding.bind_ortvalue_input(key, value)
    binding.bind_ortvalue_output("out", output)
    return Way(name, lambda: session.run_with_iobinding(binding), lambda: to_heads(output.numpy()))


def attention(problem: Problem) -> Way:
    inputs = {"q": problem.q, "k": problem.k, "v": problem.v}
    given = problem.bias if problem.bias is not None else problem.keep
    if given is not None:
        inputs["mask"] = given
    node = helper.make_node("Attention", list(inputs), ["out"], is_causal=int(problem.is_causal))
    return make_way("Attention", [node], inputs, problem.q.shape, lambda x: x)


def multi_head_attention(problem: Problem) -> Way:
    B, H, Tq, D = problem.q.shape

    def heads_last(x):
        return x.transpose(0, 2, 1, 3).reshape(B, x.shape[2], H * D)

    inputs = {"q": heads_last(problem.q), "k": heads_last(problem.k), "v": heads_last(problem.v)}
    nodes, bias = [], ""
    if problem.bias is not None:
        inputs["mask"], bias = problem.bias[None, None], "mask"
    if problem.keep is not None:  # the operator takes no booleans of this shape
        inputs["mask"], bias = problem.keep[None, None], "bias"
        nodes.append(helper.make_node("Constant", [], ["zero"], value_float=0.0))
        nodes.append(helper.make_node("Constant", [], ["excluded"], value_float=-np.inf))
        nodes.append(helper.make_node("Where", ["mask", "zero", "excluded"], ["bias"]))
    nodes.append(
        helper.make_node(
            "MultiHeadAttention",
            ["q", "k", "v", "", "", bias],
            ["out"],
            domain="com.microsoft",
            num_heads=H,
            unidirectional=int(problem.is_causal),
        )
    )
    return make_way(
        "MultiHeadAttention",
        nodes,
        inputs,
        (B, Tq, H * D),
        lambda x: x.reshape(B, Tq, H, D).transpose(0, 2, 1, 3),
    )


def matrix_products(problem: Problem) -> Way:
    B, H, Tq, D = problem.q.shape
    inputs = {"q": problem.q, "k": problem.k.swapaxes(2, 3), "v": problem.v}
    nodes = [
        helper.make_node("Constant", [], ["scale"], value_float=1 / np.sqrt(D)),
        helper.make_node("Mul", ["q", "scale"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "k"], ["products"]),
    ]
    scores = "products"
    bias = problem.bias
    if problem.is_causal:
        bias = np.triu(np.full((Tq, Tq), -np.inf, np.float32), 1)
    if bias is not None:
        inputs["mask"] = bias
        nodes.append(helper.make_node("Add", ["products", "mask"], ["masked"]))
        scores = "masked"
    if problem.keep is not None:
        inputs["mask"] = problem.keep
        nodes.append(helper.make_node("Constant", [], ["excluded"], value_float=-np.inf))
        nodes.append(helper.make_node("Where", ["mask", "products", "excluded"], ["masked"]))
        scores = "masked"
    nodes.append(helper.make_node("Softmax", [scores], ["weights"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["weights", "v"], ["out"]))
    return make_way("MatMul", nodes, inputs, problem.q.shape, lambda x: x)


serve(lambda problem: [make(problem) for make in (attention, multi_head_attention, matrix_products)])
