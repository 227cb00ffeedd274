"""Files of PyTorch's own exporter, and random chains of operators: the same outputs as ONNX Runtime."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from onnx import helper
from torch import nn

from helpers import Written, residual
from onnx_files import same_as_runtime, weights, write
from steadynet.errors import UserError

torch.manual_seed(0)
COLOUR = (3, 4, 4)
NETWORKS = {
    "view by size": (Written(lambda net, x: net.a(x.view(x.size(0), -1)), a=nn.Linear(48, 5)), COLOUR),
    "reshape by shape": (
        Written(lambda net, x: net.a(x.permute(0, 2, 3, 1).reshape(x.shape[0], -1)), a=nn.Linear(48, 5)), COLOUR,
    ),
    "normalised": (
        Written(
            lambda net, x: ((x - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / 0.5).flatten(1), a=nn.Linear(1, 1)
        ),
        COLOUR,
    ),
    "ReLU6 and an average": (
        nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ),
        COLOUR,
    ),
    "residual": (residual(), (1, 6, 6)),
    "clamp": (Written(lambda net, x: net.a(x).clamp(-0.1, 0.3) - x[:, :5].clamp(min=0.1), a=nn.Linear(6, 5)), (6,)),
    "sigmoid": (nn.Sequential(nn.Linear(6, 6), nn.Sigmoid(), nn.Linear(6, 3)), (6,)),
    "tanh": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(8, 3)), (1, 4, 4)),
    "hard tanh": (nn.Sequential(nn.Linear(6, 6), nn.Hardtanh(-0.2, 0.4), nn.Linear(6, 3)), (6,)),
    "slice": (Written(lambda net, x: net.a(x[:, 1:4]) + x[:, -3:], a=nn.Linear(3, 3)), (6,)),
    "select": (Written(lambda net, x: net.a(x[:, 0]).flatten(1), a=nn.Linear(4, 5)), COLOUR),
    "index": (Written(lambda net, x: net.a(x[:, [2, 0]]).flatten(1), a=nn.Linear(4, 5)), COLOUR),
    "chunk": (Written(lambda net, x: torch.cat(x.chunk(2, 1)[::-1], 1) - x), (6,)),
    "split": (Written(lambda net, x: torch.cat(net.a(x).split([2, 3], 1)[::-1], 1), a=nn.Linear(6, 5)), (6,)),
    "stack": (Written(lambda net, x: torch.stack([net.a(x), net.a(x).relu()], 1).flatten(1), a=nn.Linear(6, 5)), (6,)),
    "mean": (Written(lambda net, x: net.a(x).relu().mean([2, 3]), a=nn.Conv2d(3, 4, 3)), COLOUR),
    "sum": (Written(lambda net, x: net.a(x).relu().sum(-1).sum(-1), a=nn.Conv2d(3, 4, 3)), COLOUR),
    "maximum": (Written(lambda net, x: torch.maximum(net.a(x), -x), a=nn.Linear(6, 6)), (6,)),
    "pools": (
        nn.Sequential(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1, count_include_pad=False), nn.Flatten()), (3, 8, 8),
    ),
    "zeros around": (nn.Sequential(nn.ZeroPad2d((1, 0, 2, 1)), nn.Conv2d(3, 2, 3, stride=2), nn.Flatten()), COLOUR),
    "features": (
        nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.LeakyReLU(0.1), nn.Dropout(), nn.Linear(6, 3)), (6,),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # this exporter is deprecated and warns about it
@pytest.mark.parametrize("name", NETWORKS)
def test_what_pytorch_exports_is_read(name, tmp_path):
    network, shape = NETWORKS[name]
    for opset in (9, 13, 17):
        for axes in (None, {"x": {0: "n"}, "y": {0: "n"}}):
            path, names = tmp_path / "model.onnx", {"input_names": ["x"], "output_names": ["y"]}
            example = torch.rand(1, *shape)
            torch.onnx.export(
                network.eval(), (example,), path, opset_version=opset, dynamo=False, dynamic_axes=axes, **names
            )
            same_as_runtime(path, [1, *shape])


class Chain:
    """A random chain of operators on a tensor whose axes may all have length 1."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape = [self.random.choice([1, 1, 2, 3, 4]) for _ in range(self.random.randint(1, 4))]
        self.start, self.nodes, self.constants, self.last = list(self.shape), [], {}, "x"
        for _ in range(self.random.randint(1, 5)):
            if self.shape:
                self.random.choice([self.move, self.choose, self.reshape, self.join, self.compute])(
                    self.random.randrange(len(self.shape))
                )
        self.nodes.append(helper.make_node("Identity", [self.last], ["y"]))

    def add(self, kind: str, *constants, **options) -> None:
        names = [f"c{len(self.constants) + number}" for number in range(len(constants))]
        self.constants |= dict(zip(names, map(np.asarray, constants), strict=True))
        result = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [self.last, *names], [result], **options))
        self.last = result

    def move(self, axis: int) -> None:
        order = self.random.sample(range(len(self.shape)), len(self.shape))
        self.add("Transpose", perm=order)
        self.shape = [self.shape[axis] for axis in order]

    def choose(self, axis: int) -> None:
        length = self.shape[axis]
        if self.random.random() < 0.5:
            start = self.random.randrange(length)
            end = self.random.randint(start + 1, length)
            self.add("Slice", [start], [end], [axis])
            self.shape[axis] = end - start
        else:
            shape = self.random.choice([(), (1,), (2,), (2, 1)])
            index = np.array([self.random.randrange(-length, length) for _ in range(int(np.prod(shape)))])
            self.add("Gather", index.reshape(shape), axis=axis)
            self.shape[axis : axis + 1] = shape

    def reshape(self, axis: int) -> None:
        count = int(np.prod(self.shape))
        part = self.random.choice([number for number in range(1, count + 1) if count % number == 0])
        shapes = [[part, count // part], [1, part, count // part], [count], [1, count], [count, 1]]
        self.shape = self.random.choice(shapes)
        self.add("Reshape", self.shape)

    def join(self, axis: int) -> None:
        self.nodes.append(helper.make_node("Concat", [self.last, self.last], [f"v{len(self.nodes)}"], axis=axis))
        self.last = self.nodes[-1].output[0]
        self.shape[axis] *= 2

    def compute(self, axis: int) -> None:
        kind = self.random.choice(["Add", "Relu", "Clip", "MatMul", "Max", "ReduceMean"])
        if kind == "MatMul":
            self.add(kind, weights(self.shape[-1], 3))
            self.shape[-1] = 3
        elif kind == "ReduceMean":
            self.add(kind, axes=[axis], keepdims=0)
            del self.shape[axis]
        else:
            bounds = {"Relu": [], "Clip": [np.float32(-0.5), np.float32(0.7)]}
            self.add(kind, *bounds.get(kind, [weights(*self.shape[axis:])]))


def test_random_chains(tmp_path):
    read, refused = 0, set()
    for seed in range(120):
        chain = Chain(seed)
        path = write(tmp_path / "chain.onnx", chain.nodes, chain.constants, chain.start)
        try:
            same_as_runtime(path, chain.start)
            read += 1
        except UserError as error:
            refused.add(str(error).split("read: ")[1].split(", at")[0])
    assert read > 95
    assert refused <= {"a concatenation along the batch axis", "a selection along the batch axis"}
