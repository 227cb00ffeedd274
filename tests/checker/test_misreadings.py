"""False statements about unusual networks and properties: each was once believed, or could be if a file were misread.

Every proof is forged: one leaf per way to violate the property, all ReLUs named, default slopes. For each network, ONNX
Runtime computes outputs that violate the property at a point of the box, so no proof may be accepted.
"""

from __future__ import annotations

import hashlib
import zlib
from math import prod

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import steadycheck
from proof_fuzz import accepted, vnnlib_bytes

node = helper.make_node


def f4(*numbers: object) -> np.ndarray:
    return np.array(numbers, np.float32)


def i8(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def network_of(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], shape: tuple[int, ...]) -> bytes:
    shapes = {"x": shape, "y": None}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sides) for name, sides in shapes.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "odd", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def words(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def forged(content: bytes, property_file: bytes, level: int = 1) -> bytes:
    """A proof with one leaf per way to violate the property."""
    network = steadycheck.read_network(content)
    groups = steadycheck.regions(steadycheck.read_property(property_file, network))
    body = hashlib.sha256(content).digest() + hashlib.sha256(property_file).digest() + words(1, len(groups))
    sizes = [prod(network.shapes[relu]) for relu in network.relus()]
    for group in groups:
        for size in sizes:
            body += words(level, size, *([0] + [1] * (size - 1)))
        body += words(0, len(group)) + b"\0" * len(group) + words(*[0] * len(group))  # no slopes, only leaves
        body += np.ones(sum(len(violation.bound) for violation in group), "<f4").tobytes()
    packed = zlib.compress(body)
    return steadycheck.MAGIC + hashlib.sha256(packed).digest() + packed


def is_believed(content: bytes, property_file: bytes) -> bool:
    try:
        network = steadycheck.read_network(content)
        proofs = [forged(content, property_file, level) for level in (0, 1, 3)]
    except steadycheck.Refused:
        return False
    return any(accepted(network, property_file, proof) for proof in proofs)


def outputs(content: bytes, point: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": point})[0].reshape(-1)


ONE = {"one": f4(1)}
BN = ["scale", "bias", "mean", "var"]
EYE = np.eye(16, dtype=np.float32)
ODD = {  # nodes, weights, shape of the input, a point, which output is at least how large there
    "a constant that is padded": (
        [node("Pad", ["c", "p"], ["q"]), node("Add", ["x", "q"], ["y"])],
        {"c": f4([5]), "p": i8(0, 0, 0, 1)}, (1, 2), [1, 1], 1, 0.5,
    ),
    "indices with two axes": (
        [node("Mul", ["x", "one"], ["m"]), node("Gather", ["m", "i"], ["g"], axis=1), node("Transpose", ["g"], ["y"])],
        {**ONE, "i": i8([0, 1], [2, 3])}, (1, 4), [0, 1, 2, 3], 1, 1.5,
    ),
    "two images": (
        [
            node("Reshape", ["x", "s"], ["r"]), node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2]),
            node("Gather", ["p", "last"], ["g"], axis=0), node("Mul", ["g", "one"], ["y"]),
        ],
        {**ONE, "s": i8(2, 1, 2, 2), "last": i8(-1)}, (1, 8), [0] * 4 + [5] * 4, 0, 2.0,
    ),
    "an image of another form": (
        [
            node("Conv", ["x", "w"], ["a"]), node("Reshape", ["a", "s"], ["b"]), node("Conv", ["b", "w"], ["c"]),
            node("Relu", ["c"], ["d"]), node("Flatten", ["d"], ["e"]), node("MatMul", ["e", "chosen"], ["y"]),
        ],
        {"w": f4([[[1]]]), "s": i8(1, 1, 2, 8), "chosen": EYE[:, 7:8]},
        (1, 1, 4, 4), [0] * 7 + [3] + [0] * 8, 0, 1.5,
    ),
    "the default of epsilon": (
        [node("BatchNormalization", ["x", *BN], ["y"])],
        dict(zip(BN, (f4(1e-3), f4(0), f4(0), f4(-9.999e-6)), strict=True)), (1, 1), [1], 0, 1.0,
    ),
    "Gemm of two rows": (
        [node("Reshape", ["x", "s"], ["r"]), node("Gemm", ["r", "w"], ["g"]), node("Gather", ["g", "last"], ["y"])],
        {"w": f4([1]), "s": i8(2, 1), "last": i8(-1)}, (1, 2), [0, 3], 0, 2.0,
    ),
    "a factor that overflows": (
        [node("Gemm", ["x", "w"], ["y"], alpha=1e-30)], {"w": np.full((10, 1), 1e38, "f4")}, (1, 10), [1] * 10, 0, 1e10
    ),
    "an extreme scale": (
        [node("BatchNormalization", ["x", *BN], ["y"])],
        dict(zip(BN, (f4(-1e-44), f4(0), f4(-1e38), f4(1)), strict=True)), (1, 1), [0], 0, -0.99,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_false_statement_about_an_odd_network_is_refused(name: str) -> None:
    nodes, weights, shape, values, chosen, limit = ODD[name]
    content, point = network_of(nodes, weights, shape), np.array(values, np.float32)
    found = outputs(content, point.reshape(shape))
    assert not found[chosen] < limit  # the property is false, or the network computes no number
    corner = point.astype(np.float64)
    assert not is_believed(content, vnnlib_bytes(corner, corner, len(found), f"(>= Y_{chosen} {limit!r})"))


LINEAR = network_of([node("Gemm", ["x", "w"], ["y"])], {"w": np.eye(2, dtype=np.float32)}, (1, 2))


@pytest.mark.parametrize(
    "violated",
    [
        "(or (and (>= Y_0 5)) ; first\r (and (>= Y_0 0.5))\n)",  # a carriage return ends a comment
        "(or (and (>= Y_0 5)) ; first\f (and (>= Y_0 0.5))\n)",  # a form feed: some end a line there
        "(or (and (>= Y_0 5)) ; first\u2028 (and (>= Y_0 0.5))\n)",
        "(or (assert (<= X_0 0.1)) (>= Y_0 0.5))",  # a bound is no part of a formula
        "(or (>= Y_0 5) (or))", "(or (>= Y_0 5) (and))", "(and)", "(or (not (>= Y_0 5)) (>= Y_0 0.5))",
        "(>= Y_00 5)", "(>= Y_\u0660 5)", "(>= Y_" + "1" * 5000 + " 5)",  # names that nobody declared
        "(>= X_0 0.5)", "(>= Y_0 |5|)", "@", "(= Y_0 5)",
    ],
)  # fmt: skip
def test_a_property_that_could_be_misread_is_refused(violated: str) -> None:
    assert not is_believed(LINEAR, vnnlib_bytes(np.zeros(2), np.ones(2), 2, violated))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Constant", [], [""], value=numpy_helper.from_array(f4(-5))), node("Gemm", ["x", "w", ""], ["y"])],
        [node("Reshape", ["x", "x"], ["y"])],  # a shape that depends on the input
        [node("Concat", ["x", "i"], ["y"], axis=0)],
        [node("Concat", ["x", "x"], ["y"])],  # along which axis?
        [node("Gather", ["i", "x"], ["y"])],
        [node("Pad", ["x", "p"], ["y"], mode="edge")],
        [node("Gemm", ["x", "w"], ["y"], transA=1)],
        [node("Reshape", ["x", "s"], ["r"]), node("Gemm", ["r", "v"], ["y"])],  # two rows
        [node("Gemm", ["x", "w"], [""]), node("Gemm", ["x", "w", ""], ["y"])],  # an output without a name
        [node("MatMul", ["x", "x"], ["y"])],
        [node("Mul", ["x", "x"], ["y"])],
        [node("Relu", ["x"], ["y"], alpha=1.0)],
        [node("Relu", ["x"], ["y"], domain="other")],
    ],
)
def test_a_network_that_could_be_misread_is_refused(nodes: list[onnx.NodeProto]) -> None:
    weights = {"i": i8(0, 1), "p": i8(0, 0, 0, 1), "w": f4([1, 0], [0, 1]), "s": i8(2, 1), "v": f4([1])}
    with pytest.raises(steadycheck.Refused):
        steadycheck.read_network(network_of(nodes, weights, (1, 2)))


def test_weights_without_a_name_are_no_bias() -> None:
    """In ONNX, an empty name says that an input is left out: the network computes x, not x − 5."""
    with pytest.raises(steadycheck.Refused, match="name"):
        steadycheck.read_network(network_of([node("Gemm", ["x", "w", ""], ["y"])], {"w": f4([1]), "": f4(-5)}, (1, 1)))


def test_what_is_not_odd_is_believed() -> None:
    assert is_believed(LINEAR, vnnlib_bytes(np.zeros(2), np.ones(2), 2, "(>= Y_0 1.5)"))


def test_coefficients_that_are_added_up_are_charged() -> None:
    """Large weights that cancel: a sum of coefficients rounds, though the network only moves numbers."""
    weight = np.full((2, 1), 2.0**60, np.float32)
    weight[1] *= -1
    nodes = [node("Concat", ["x", "x"], ["c"], axis=1), node("MatMul", ["c", "w"], ["y"])]
    content = network_of(nodes, {"w": weight}, (1, 1))
    property_file = vnnlib_bytes(np.array([1.0]), np.array([1.0]), 1, "(>= Y_0 0.5)")
    assert not is_believed(content, property_file)  # true in exact arithmetic, but float32 and we cannot tell


def test_what_is_no_folder_of_proofs_gets_a_hint(tmp_path, capsys) -> None:
    (tmp_path / "proofs").mkdir()
    said = [
        (["--help"], 0, "    steadycheck NETWORK.onnx"),
        ([str(tmp_path / "nowhere")], 2, f"{tmp_path / 'nowhere'} does not exist"),
        ([str(tmp_path)], 2, f"the proofs are in {tmp_path / 'proofs'}"),
        ([str(tmp_path / "proofs")], 2, "nothing to check"),
    ]
    for words, code, line in said:
        assert steadycheck.main(words) == code
        assert capsys.readouterr().out.splitlines()[0].startswith(line)


def test_a_folder_with_a_property_that_has_no_proof_is_refused(tmp_path, capsys) -> None:
    property_file = vnnlib_bytes(np.zeros(2), np.ones(2), 2, "(>= Y_0 1.5)")
    (tmp_path / "model.onnx").write_bytes(LINEAR)
    for name in ("image-eps-0.1", "other-eps-0.1"):
        (tmp_path / f"{name}.vnnlib").write_bytes(property_file)
        (tmp_path / f"{name}.proof").write_bytes(forged(LINEAR, property_file))
    assert steadycheck.main([str(tmp_path)]) == 0
    (tmp_path / "other-eps-0.1.proof").unlink()
    assert steadycheck.main([str(tmp_path)]) == 1
    assert "1 of 2 proofs are valid" in capsys.readouterr().out
