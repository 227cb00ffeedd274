"""The process that runs Marabou: it reads a network once, and decides each property in a fork of its own.

``marabou.py`` runs this file as a program. It imports nothing of steadynet, and only ``main`` imports Marabou. A fork
that crashes or runs out of time costs its own property only.

    python marabou_queries.py FOLDER

FOLDER holds ``model.onnx`` and ``queries.npz``, which has one row per property: ``lower`` and ``upper`` (properties,
inputs), ``labels``, and ``others``, the classes to compare with. ``seconds`` is the time-out of a property. The process
prints one :class:`Message` per line.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

QUERIES = "queries.npz"
CLEAR_MARGIN = -1e-4  # a margin that is below zero whatever the rounding


class Status(Enum):
    """What Marabou returns for one query."""

    SAT = "sat"
    UNSAT = "unsat"
    TIMEOUT = "TIMEOUT"
    ERROR = "ERROR"
    OTHER = "other"  # any other word

    @classmethod
    def parse(cls, word: str) -> Status:
        """Parse the word that Marabou returns. This is the only place that knows these words."""
        return cls(word) if word in {status.value for status in cls} else cls.OTHER


@dataclass(frozen=True)
class QueryAnswer:
    """Marabou's answer to one query. For ``sat`` it has an input, and the margin there as Marabou computes it."""

    status: Status
    word: str
    point: list[float] = field(default_factory=list)
    margin: float = 0.0


@dataclass(frozen=True)
class PropertyAnswer:
    """The answer to all queries of one property: a verdict by its word, and points that may be counterexamples."""

    verdict: str
    reason: str = ""
    points: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Message:
    """One line of output: the network was read, or an error, or the answer to the property of one row."""

    error: str = ""
    row: int = 0
    seconds: float = 0.0
    answer: PropertyAnswer | None = None

    def to_line(self) -> str:
        """Return the message as one line of JSON.

        >>> Message.from_line(Message(row=3, answer=PropertyAnswer("unsat")).to_line()).answer.verdict
        'unsat'
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Message:
        """Return the message that such a line holds."""
        content = json.loads(line)
        answer = content.pop("answer", None)
        return cls(**content, answer=None if answer is None else PropertyAnswer(**answer))


def main(folder: str) -> None:
    """Print a message when the network is read (or cannot be read), then one message per property."""
    import numpy as np

    lines = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # Marabou's C++ code prints to the standard output
    warnings.simplefilter("ignore")

    def send(message: Message) -> None:
        lines.write(message.to_line() + "\n")
        lines.flush()

    try:
        from maraboupy import Marabou

        network = read(Marabou, os.path.join(folder, "model.onnx"))
    except Exception as error:  # whatever it is, the user should know
        send(Message(error=f"{type(error).__name__}: {error}"))
        return
    queries = np.load(os.path.join(folder, QUERIES))
    send(Message())
    for row in range(len(queries["labels"])):
        started = time.perf_counter()
        answer = run_in_fork(lambda: decide(Marabou, network, queries, row), float(queries["seconds"]))  # noqa: B023
        send(Message(row=row, seconds=time.perf_counter() - started, answer=answer))


def read(marabou: Any, path: str) -> Any:
    """Read a network with Marabou, and check that it computes the same as ONNX Runtime.

    Marabou ignores some options of layers without a warning. Its proofs would then be about another network.
    """
    import numpy as np
    import onnxruntime

    network = marabou.read_onnx(write_with_batch_norms(path))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for seed in range(3):
        point = np.random.default_rng(seed).uniform(size=network.inputVars[0].shape).astype(np.float32)
        (expected,) = session.run(None, {session.get_inputs()[0].name: point})
        found = outputs(network, point.reshape(-1).tolist())
        if not np.abs(np.array(found) - expected.reshape(-1)).max() <= 1e-4 * (np.abs(expected).max() + 0.1):
            raise RuntimeError("Marabou reads this network as another one")
    return network


def outputs(network: Any, inputs: list[float]) -> list[float]:
    """Compute the network's outputs from the equations that Marabou has read.

    Each equation defines one variable by variables with smaller numbers.
    """
    rules: dict[int, Any] = {}
    for equation in network.equList:
        *terms, (_, variable) = equation.addendList  # the last term is −1 times the variable that the equation defines
        rules[variable] = lambda values, terms=terms, shift=equation.scalar: (
            sum(factor * values[term] for factor, term in terms) - shift
        )
    for source, variable in network.reluList:
        rules[variable] = lambda values, source=source: max(values[source], 0.0)
    for source, variable, slope in network.leakyReluList:
        rules[variable] = lambda values, source=source, slope=slope: max(values[source], slope * values[source])
    for sources, variable in network.maxList:
        rules[variable] = lambda values, sources=sources: max(values[source] for source in sources)
    values = dict(zip(network.inputVars[0].reshape(-1).tolist(), inputs, strict=True))
    for variable in range(network.numVars):
        if variable in rules:
            values[variable] = rules[variable](values)
    return [values[variable] for variable in network.outputVars[0].reshape(-1).tolist()]


def write_with_batch_norms(path: str) -> str:
    """Write the same network with each multiplication by a constant as a batch norm, and return the file's path.

    Marabou reads ``Mul`` only if the constant is a single number.
    """
    import numpy as np
    import onnx

    model = onnx.load(path)
    weights = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        entry.name: [dimension.dim_value for dimension in entry.type.tensor_type.shape.dim][1:]
        for entry in (*inferred.input, *inferred.value_info)
    }
    for position, node in enumerate(model.graph.node):
        if node.op_type != "Mul" or weights[node.input[1]].size == 1:
            continue
        factor = np.broadcast_to(weights[node.input[1]], shapes[node.input[0]]).reshape(-1)
        names = [f"{node.name}_{name}" for name in ("scale", "bias", "mean", "variance")]
        for name, value in zip(names, (factor, 0 * factor, 0 * factor, 0 * factor + 1), strict=True):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        norm = onnx.helper.make_node("BatchNormalization", [node.input[0], *names], [node.output[0]], epsilon=0.0)
        model.graph.node[position].CopyFrom(norm)
    onnx.save(model, f"{path}.marabou")
    return f"{path}.marabou"


def decide(marabou: Any, network: Any, queries: Any, row: int) -> PropertyAnswer:
    """Decide one property by one query per other class: is its score at least the label's somewhere in the box?"""
    deadline = time.perf_counter() + float(queries["seconds"])
    label = int(queries["labels"][row])
    doubts: list[PropertyAnswer] = []
    points: list[list[float]] = []
    for other in queries["others"][row].tolist():
        answer = query(marabou, network, queries, row, (label, other), 0.0, deadline)
        if answer.status is Status.SAT:
            points += clear_points(marabou, network, queries, row, (label, other), answer.margin, deadline)
            points.append(answer.point)
            if answer.margin <= CLEAR_MARGIN or len(points) > 1:
                break
        elif answer.status is Status.TIMEOUT:
            return PropertyAnswer("timeout")
        elif answer.status is not Status.UNSAT:
            verdict = "error" if answer.status is Status.ERROR else "unknown"
            doubts.append(PropertyAnswer(verdict, f"Marabou said {answer.word}"))
    if points:
        return PropertyAnswer("sat", points=points)
    return doubts[0] if doubts else PropertyAnswer("unsat")


def clear_points(
    marabou: Any, network: Any, queries: Any, row: int, pair: tuple[int, int], margin: float, deadline: float
) -> list[list[float]]:
    """Where a margin is zero to within rounding, look for a point where it is clearly below zero."""
    for bound in () if margin <= CLEAR_MARGIN else (100 * CLEAR_MARGIN, CLEAR_MARGIN):
        answer = query(marabou, network, queries, row, pair, bound, deadline)
        if answer.status is Status.SAT:
            return [answer.point]
    return []


def query(
    marabou: Any, network: Any, queries: Any, row: int, pair: tuple[int, int], bound: float, deadline: float
) -> QueryAnswer:
    """Ask Marabou whether y[label] − y[other] ≤ bound somewhere in the box of this row."""
    inputs = network.inputVars[0].flatten().tolist()
    label, other = (network.outputVars[0].flatten().tolist()[output] for output in pair)
    network.clearProperty()
    for variable, low, high in zip(inputs, queries["lower"][row].tolist(), queries["upper"][row].tolist(), strict=True):
        network.setLowerBound(variable, low)
        network.setUpperBound(variable, high)
    network.addInequality([label, other], [1.0, -1.0], bound, isProperty=True)
    seconds = max(1, math.ceil(deadline - time.perf_counter()))
    options = marabou.createOptions(verbosity=0, timeoutInSeconds=seconds, numWorkers=1)
    word, values, _ = marabou.solve_query(network.getInputQuery(), verbose=False, options=options)
    status = Status.parse(word)
    if status is not Status.SAT:
        return QueryAnswer(status, word)
    return QueryAnswer(status, word, [values[variable] for variable in inputs], values[label] - values[other])


def run_in_fork(work: Callable[[], PropertyAnswer], seconds: float) -> PropertyAnswer:
    """Return what ``work`` returns, computed in a forked process that is killed after so many seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = work()
        except BaseException as error:
            answer = PropertyAnswer("error", f"{type(error).__name__}: {error}")
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(asdict(answer)))
        os._exit(0)
    os.close(writing)
    deadline, text = time.perf_counter() + seconds, b""
    try:
        while True:
            if not select.select([reading], [], [], max(0.0, deadline - time.perf_counter()))[0]:
                return PropertyAnswer("timeout")
            part = os.read(reading, 2**16)
            if not part:
                break
            text += part
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # even if it has ended: until ``waitpid`` its id belongs to no other process
        _, status = os.waitpid(child, 0)
    if not text:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return PropertyAnswer("error", f"Marabou crashed{f' with signal {number}' if number else ''}")
    return PropertyAnswer(**json.loads(text))


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are steadynet's
    main(sys.argv[1])
