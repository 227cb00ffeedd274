"""Small ONNX networks, and how to change parts of them by chance."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import torch
from torch import nn

from fuzz_texts import changed_bytes
from helpers import CLASSES, IMAGE, convolutional, dense, residual
from onnx_files import keras
from steadynet.interchange.onnx.operators.table import OPERATORS
from steadynet.interchange.onnx.writer import export_onnx


@cache
def models() -> tuple[bytes, ...]:
    """Small networks that are read: dense, convolutional, residual, pooled, and channels last."""
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


def changed_model(content: bytes, dice: random.Random) -> bytes:
    """A few of a model's nodes, attributes, names, weights and shapes changed."""
    model = onnx.ModelProto.FromString(content)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        changes = (_change_kind, _change_name, _change_attribute, _change_order, _change_weight, _change_shape)
        dice.choice(changes)(model, dice)
    return model.SerializeToString()


def _change_kind(model: onnx.ModelProto, dice: random.Random) -> None:
    if dice.random() < 0.2:
        model.opset_import[0].version = dice.choice([1, 6, 7, 9, 11, 12, 13, 14, 17, 18, 21, 99])
    elif model.graph.node:
        dice.choice(model.graph.node).op_type = dice.choice([*OPERATORS, "Loop", "Softmax", "Nonsense"])


def _change_name(model: onnx.ModelProto, dice: random.Random) -> None:
    names = [name for node in model.graph.node for name in (*node.input, *node.output)] + ["", "x", "nothing"]
    node = dice.choice(model.graph.node) if model.graph.node else None
    for part in (node.input, node.output) if node else ():
        if part and dice.random() < 0.5:
            part[dice.randrange(len(part))] = dice.choice(names)
    if node and dice.random() < 0.2:
        node.input.append(dice.choice(names))


def _change_attribute(model: onnx.ModelProto, dice: random.Random) -> None:
    found = [entry for node in model.graph.node for entry in node.attribute]
    number = dice.choice([-3, -2, -1, 0, 1, 2, 3, 4, 7, 2**31, 2**62])
    if not found:
        return
    entry = dice.choice(found)
    if entry.ints:
        entry.ints[dice.randrange(len(entry.ints))] = number
        if dice.random() < 0.2:
            entry.ints.append(number)
    elif entry.type == onnx.AttributeProto.FLOAT:
        entry.f = dice.choice([0.0, -1.0, 0.5, 1e30, float("inf"), float("nan")])
    else:
        entry.i = number


def _change_order(model: onnx.ModelProto, dice: random.Random) -> None:
    nodes = list(model.graph.node)
    if not nodes:
        return
    match dice.randrange(3):
        case 0:
            nodes.pop(dice.randrange(len(nodes)))
        case 1:
            nodes.insert(dice.randrange(len(nodes)), dice.choice(nodes))
        case 2:
            dice.shuffle(nodes)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)


def _change_weight(model: onnx.ModelProto, dice: random.Random) -> None:
    if not model.graph.initializer:
        return
    entry = dice.choice(model.graph.initializer)
    match dice.randrange(4):
        case 0:
            entry.data_type = dice.choice([0, 1, 2, 6, 7, 9, 10, 11, 16, 99])
        case 1 if entry.dims:
            entry.dims[dice.randrange(len(entry.dims))] = dice.choice([-1, 0, 1, 2, 3, 36, 2**40])
        case 2:
            entry.dims[:] = dice.sample(list(entry.dims), len(entry.dims))
        case _:
            entry.raw_data = changed_bytes(entry.raw_data, dice)


def _change_shape(model: onnx.ModelProto, dice: random.Random) -> None:
    entry = dice.choice([*model.graph.input, *model.graph.output])
    axes = entry.type.tensor_type.shape.dim
    if axes:
        axis = dice.choice(axes)
        axis.dim_value = dice.choice([-1, 0, 1, 2, 3, 6, 7, 36, 2**20, 2**40])
