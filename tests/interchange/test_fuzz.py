"""The short form of fuzzing the readers, and faults planted to see that it finds them."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest

import fuzz
import fuzz_judges
from fuzz_texts import ONES, TWOS
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.property import Disjunct

SHORT = 2000


def test_changed_files_are_refused_or_read_rightly():
    found = list(fuzz.outcomes(range(10**6, 10**6 + SHORT)))
    assert [each for each in found if each[1] not in ("error", "reading")] == []
    for kind in fuzz.SHARES:
        assert {said for number, said in found if fuzz.kind_of(number) == kind} == {"error", "reading"}


def _loosened(case: Disjunct) -> Disjunct:
    return replace(case, strict=frozenset())


def _widened(case: Disjunct) -> Disjunct:
    return replace(case, upper=case.upper + 0.25)


def _turned(case: Disjunct) -> Disjunct:
    return replace(case, matrix=-case.matrix)


@pytest.mark.parametrize("fault", [_loosened, _widened, _turned])
def test_a_wrong_reading_is_noticed(fault, monkeypatch, tmp_path):
    def wrong(path):
        found = read_vnnlib(path)
        return replace(found, disjuncts=tuple(map(fault, found.disjuncts)))

    def noticed() -> int:
        count = 0
        for number, text in enumerate((ONES + TWOS) * 5):
            (tmp_path / "case.vnnlib").write_text(" " * number + text)  # the length seeds the points
            try:
                fuzz_judges.judge(tmp_path / "case.vnnlib")
            except fuzz_judges.WrongError:
                count += 1
        return count

    assert noticed() == 0
    monkeypatch.setattr(fuzz_judges, "read_vnnlib", wrong)
    assert noticed() > 0


def test_another_network_is_noticed(monkeypatch, tmp_path):
    (tmp_path / "case.onnx").write_bytes(fuzz.models()[1])
    assert fuzz_judges.judge(tmp_path / "case.onnx") == "reading"
    for outputs in (3, 4):
        ones = np.ones(outputs, np.float32)
        monkeypatch.setattr(fuzz_judges, "runtime_function", lambda model, ones=ones: lambda image: ones)
        with pytest.raises(fuzz_judges.WrongError):
            fuzz_judges.judge(tmp_path / "case.onnx")


def hang_or_crash(numbers, pipe):
    pipe.send("ready")
    for number in numbers:
        if number == 1:
            time.sleep(60)
        if number == 2:
            os._exit(3)
        pipe.send("reading")


def test_hanging_and_crashing_are_noticed_and_the_rest_goes_on():
    said = [outcome for _, outcome in fuzz.outcomes(range(4), hang_or_crash, 1.0)]
    assert said == ["reading", "no answer in 1 s", "the process ended with 3", "reading"]
