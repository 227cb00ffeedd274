"""Marabou's own process: reads a network once, decides each property in a fork of its own, prints a line a property.

It is run as a program, by ``marabou.py``: it knows nothing of steadynet, and only ``main`` imports Marabou. A fork that
crashes or outlives its time costs its property, not the others.

    python marabou_queries.py FOLDER

FOLDER has ``model.onnx`` and ``task.npz``: lower and upper (properties, inputs), labels, seconds; lines are JSON.
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
from typing import Any

CLEAR = -1e-4  # a margin that is below zero whatever the rounding


def main(folder: str) -> None:
    """Print ``{"ready": true}`` or ``{"error": …}``, then a line a property."""
    import numpy as np

    lines = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # Marabou prints, natively
    warnings.simplefilter("ignore")

    def say(**words: Any) -> None:
        lines.write(json.dumps(words) + "\n")
        lines.flush()

    try:
        from maraboupy import Marabou

        network = read(Marabou, os.path.join(folder, "model.onnx"))
    except Exception as error:  # whatever it is, it is said
        say(error=f"{type(error).__name__}: {error}")
        return
    task = np.load(os.path.join(folder, "task.npz"))
    say(ready=True)
    for row, label in enumerate(task["labels"].tolist()):
        started = time.perf_counter()
        found = forked(lambda: decide(Marabou, network, task, row, label), float(task["seconds"]))  # noqa: B023
        say(row=row, seconds=time.perf_counter() - started, **found)


def read(marabou: Any, path: str) -> Any:
    """The network as Marabou reads it; a reading that computes something else than ONNX Runtime is an error.

    Marabou's reader passes over some options of layers in silence, so that what it proves would be of another network.
    """
    import numpy as np
    import onnxruntime

    network = marabou.read_onnx(rewritten(path))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for seed in range(3):
        point = np.random.default_rng(seed).uniform(size=network.inputVars[0].shape).astype(np.float32)
        (expected,) = session.run(None, {session.get_inputs()[0].name: point})
        found = outputs(network, point.reshape(-1).tolist())
        if not np.abs(np.array(found) - expected.reshape(-1)).max() <= 1e-4 * (np.abs(expected).max() + 0.1):
            raise RuntimeError("Marabou reads this network as another one")
    return network


def outputs(network: Any, inputs: list[float]) -> list[float]:
    """What the equations that Marabou has read make of an input: each defines its variable by earlier ones."""
    rules: dict[int, Any] = {}
    for equation in network.equList:
        *terms, (_, variable) = equation.addendList  # of which the last is −1 times the variable
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


def rewritten(path: str) -> str:
    """The same model with its products by constants as batch norms: of ``Mul``, Marabou reads single numbers only."""
    import numpy as np
    import onnx

    model = onnx.load(path)
    weights = {entry.name: onnx.numpy_helper.to_array(entry) for entry in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        entry.name: [dimension.dim_value for dimension in entry.type.tensor_type.shape.dim][1:]
        for entry in (*inferred.input, *inferred.value_info)
    }
    for place, node in enumerate(model.graph.node):
        if node.op_type != "Mul" or weights[node.input[1]].size == 1:
            continue
        factor = np.broadcast_to(weights[node.input[1]], shapes[node.input[0]]).reshape(-1)
        names = [f"{node.name}_{name}" for name in ("scale", "bias", "mean", "variance")]
        for name, value in zip(names, (factor, 0 * factor, 0 * factor, 0 * factor + 1), strict=True):
            model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
        norm = onnx.helper.make_node("BatchNormalization", [node.input[0], *names], [node.output[0]], epsilon=0.0)
        model.graph.node[place].CopyFrom(norm)
    onnx.save(model, f"{path}.marabou")
    return f"{path}.marabou"


def decide(marabou: Any, network: Any, task: Any, row: int, label: int) -> dict[str, Any]:
    """One query for each other class: is its score at least the label's somewhere in the box?"""
    end = time.perf_counter() + float(task["seconds"])
    doubts: list[dict[str, Any]] = []
    points: list[list[float]] = []
    for other in task["others"][row].tolist():
        code, values, margin = query(marabou, network, task, row, (label, other), 0.0, end)
        if code == "sat":
            points += [*clearer(marabou, network, task, row, (label, other), margin, end), values]
            if margin <= CLEAR or len(points) > 1:
                break
        elif code == "TIMEOUT":
            return {"verdict": "timeout"}
        elif code != "unsat":
            doubts.append({"verdict": "error" if code == "ERROR" else "unknown", "reason": f"Marabou said {code}"})
    if points:
        return {"verdict": "sat", "values": points}
    return doubts[0] if doubts else {"verdict": "unsat"}


def clearer(
    marabou: Any, network: Any, task: Any, row: int, pair: tuple[int, int], margin: float, end: float
) -> list[list[float]]:
    """Where a margin is zero to within rounding: a point where it is clearly below, if there is one."""
    for bound in () if margin <= CLEAR else (100 * CLEAR, CLEAR):
        code, values, _ = query(marabou, network, task, row, pair, bound, end)
        if code == "sat":
            return [values]
    return []


def query(
    marabou: Any, network: Any, task: Any, row: int, pair: tuple[int, int], bound: float, end: float
) -> tuple[str, list[float], float]:
    """Is y[label] − y[other] ≤ bound somewhere in the box? Marabou's answer, the input and the margin there."""
    inputs = network.inputVars[0].flatten().tolist()
    label, other = (network.outputVars[0].flatten().tolist()[place] for place in pair)
    network.clearProperty()
    for variable, low, high in zip(inputs, task["lower"][row].tolist(), task["upper"][row].tolist(), strict=True):
        network.setLowerBound(variable, low)
        network.setUpperBound(variable, high)
    network.addInequality([label, other], [1.0, -1.0], bound, isProperty=True)
    seconds = max(1, math.ceil(end - time.perf_counter()))
    options = marabou.createOptions(verbosity=0, timeoutInSeconds=seconds, numWorkers=1)
    code, values, _ = marabou.solve_query(network.getInputQuery(), verbose=False, options=options)
    if code != "sat":
        return code, [], 0.0
    return code, [values[variable] for variable in inputs], values[label] - values[other]


def forked(work: Any, seconds: float) -> dict[str, Any]:
    """What ``work`` returns, computed in a fork that has so many seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = work()
        except BaseException as error:
            answer = {"verdict": "error", "reason": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as file:
            file.write(json.dumps(answer))
        os._exit(0)
    os.close(writing)
    end, text = time.perf_counter() + seconds, b""
    try:
        while True:
            if not select.select([reading], [], [], max(0.0, end - time.perf_counter()))[0]:
                return {"verdict": "timeout"}
            part = os.read(reading, 2**16)
            if not part:
                break
            text += part
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)  # done or not: a process that ended waits for us, so the number is still its own
        _, status = os.waitpid(child, 0)
    if not text:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        return {"verdict": "error", "reason": f"Marabou crashed{f' with signal {number}' if number else ''}"}
    found: dict[str, Any] = json.loads(text)
    return found


if __name__ == "__main__":
    del sys.path[0]  # this folder: its modules are steadynet's
    main(sys.argv[1])
