"""Our MILP as a process that others ask: the honest half of a tool of the competition. ``milp_server.py SOCKET``."""

from __future__ import annotations

import json
import socket
import sys

import torch

from steadynet.attacks.region import InputRegion
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verifiers.milp import Milp


def answer(onnx: str, vnnlib: str, shape: list[int], timeout: float) -> str:
    """What the competition's tools write into their result files."""
    cases = read_vnnlib(vnnlib).disjuncts
    (label,) = cases[0].matrix[0].clip(min=0).nonzero()[0].tolist()
    lower, upper = (torch.from_numpy(corner).float().reshape(1, *shape) for corner in (cases[0].lower, cases[0].upper))
    middle = (lower + upper) / 2
    properties = Properties(read_onnx(onnx), middle, torch.tensor([label]), InputRegion(lower, upper))
    (result,) = Milp(timeout=timeout)(properties)
    if result.verdict is not Verdict.SAT:
        return result.verdict.value
    values = result.counterexample.flatten().tolist()
    return "sat\n(" + "\n".join(f"(X_{place} {value!r})" for place, value in enumerate(values)) + ")\n"


def main(path: str) -> None:
    import onnx

    torch.set_num_threads(1)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(100)
        while True:
            client, _ = server.accept()
            with client:
                asked = json.loads(client.recv(2**16))
                try:
                    dimensions = onnx.load(asked[0]).graph.input[0].type.tensor_type.shape.dim
                    said = answer(*asked[:2], [entry.dim_value for entry in dimensions[1:]], float(asked[3]))
                    client.sendall(said.encode())
                except Exception as error:  # a client that was killed, or a file that is gone
                    print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
