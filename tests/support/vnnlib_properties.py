"""Random VNN-LIB properties, and the comparison of two."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty

quarters = st.integers(-40, 40).map(lambda number: number / 4)
numbers = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def vnnlib_properties(draw, strict=False, values=numbers):
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    disjuncts = []
    box = [sorted((draw(values), draw(values))) for _ in range(inputs)]
    for _ in range(draw(st.integers(1, 4))):
        ends = box if draw(st.booleans()) else [sorted((draw(values), draw(values))) for _ in range(inputs)]
        rows = draw(st.integers(0, 3))
        matrix = [[draw(values) for _ in range(outputs)] for _ in range(rows)]
        for row in matrix:
            row[0] = row[0] or 1.0
        bound = [draw(values) for _ in range(rows)]
        below = draw(st.frozensets(st.integers(0, rows - 1))) if strict and rows else frozenset()
        lower, upper = zip(*ends, strict=True)
        arrays = np.array(lower), np.array(upper), np.array(matrix).reshape(rows, outputs), np.array(bound)
        disjuncts.append(Disjunct(*arrays, below))
    return VnnlibProperty(inputs, outputs, tuple(disjuncts))


def same(one: VnnlibProperty, other: VnnlibProperty) -> bool:
    """Whether two properties are exactly the same."""
    if (one.input_size, one.output_size, len(one.disjuncts)) != (
        other.input_size,
        other.output_size,
        len(other.disjuncts),
    ):
        return False
    return all(
        mine.strict == theirs.strict
        and all(
            np.array_equal(getattr(mine, name), getattr(theirs, name)) for name in ("lower", "upper", "matrix", "bound")
        )
        for mine, theirs in zip(one.disjuncts, other.disjuncts, strict=True)
    )
