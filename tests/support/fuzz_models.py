"""Small ONNX networks, and random mutations of their parts."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
from torch import nn

from fuzz_texts import mutate_bytes
from helpers import CLASSES, IMAGE, convolutional, dense, residual
from onnx_files import keras
from steadynet.interchange.onnx.operators.table import OPERATORS
from steadynet.interchange.onnx.writer import export_onnx


@cache
def models() -> tuple[bytes, ...]:
    """Small networks that can be read: dense, convolutional, residual, with pooling, and with channels last."""
    torch.manual_seed(0)
    pooled = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.LeakyReLU(0.2), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(18, 4), nn.Hardtanh(), nn.Linear(4, CLASSES),
    )  # fmt: skip
    flat = nn.Sequential(nn.Flatten(), dense(36, 3, CLASSES))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        found = [keras(path).read_bytes()]
        for network in (flat, convolutional(), residual(), pooled):
            export_onnx(network.eval(), IMAGE, path)
            found.append(path.read_bytes())
    return tuple(found)


def mutate_model(content: bytes, rng: random.Random) -> bytes:
    """Change a few of a model's nodes, attributes, names, weights and shapes."""
    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        mutations = (_mutate_kind, _mutate_name, _mutate_attribute, _mutate_order, _mutate_weight, _mutate_shape)
        rng.choice(mutations)(model, rng)
    return model.SerializeToString()


def _mutate_kind(model: onnx.ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.2:
        model.opset_import[0].version = rng.choice([1, 6, 7, 9, 11, 12, 13, 14, 17, 18, 21, 99])
    elif model.graph.node:
        rng.choice(model.graph.node).op_type = rng.choice([*OPERATORS, "Loop", "Softmax", "Nonsense"])


def _mutate_name(model: onnx.ModelProto, rng: random.Random) -> None:
    names = [name for node in model.graph.node for name in (*node.input, *node.output)] + ["", "x", "nothing"]
    node = rng.choice(model.graph.node) if model.graph.node else None
    for part in (node.input, node.output) if node else ():
        if part and rng.random() < 0.5:
            part[rng.randrange(len(part))] = rng.choice(names)
    if node and rng.random() < 0.2:
        node.input.append(rng.choice(names))


def _mutate_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    found = [entry for node in model.graph.node for entry in node.attribute]
    number = rng.choice([-3, -2, -1, 0, 1, 2, 3, 4, 7, 2**31, 2**62])
    if not found:
        return
    entry = rng.choice(found)
    if entry.ints:
        entry.ints[rng.randrange(len(entry.ints))] = number
        if rng.random() < 0.2:
            entry.ints.append(number)
    elif entry.type == onnx.AttributeProto.FLOAT:
        entry.f = rng.choice([0.0, -1.0, 0.5, 1e30, float("inf"), float("nan")])
    else:
        entry.i = number


def _mutate_order(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = list(model.graph.node)
    if not nodes:
        return
    match rng.randrange(3):
        case 0:
            nodes.pop(rng.randrange(len(nodes)))
        case 1:
            nodes.insert(rng.randrange(len(nodes)), rng.choice(nodes))
        case 2:
            rng.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _mutate_weight(model: onnx.ModelProto, rng: random.Random) -> None:
    if not model.graph.initializer:
        return
    entry = rng.choice(model.graph.initializer)
    match rng.randrange(4):
        case 0:
            entry.data_type = rng.choice([0, 1, 2, 6, 7, 9, 10, 11, 16, 99])
        case 1 if entry.dims:
            entry.dims[rng.randrange(len(entry.dims))] = rng.choice([-1, 0, 1, 2, 3, 36, 2**40])
        case 2:
            entry.dims[:] = rng.sample(list(entry.dims), len(entry.dims))
        case _:
            entry.raw_data = mutate_bytes(entry.raw_data, rng)


def _mutate_shape(model: onnx.ModelProto, rng: random.Random) -> None:
    entry = rng.choice([*model.graph.input, *model.graph.output])
    axes = entry.type.tensor_type.shape.dim
    if axes:
        axis = rng.choice(axes)
        axis.dim_value = rng.choice([-1, 0, 1, 2, 3, 6, 7, 36, 2**20, 2**40])
