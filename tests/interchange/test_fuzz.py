"""The short form of fuzzing the readers, and planted faults that the fuzzing must find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fuzz
import fuzz_judges
from fuzz_outcomes import Kind
from fuzz_texts import VERSION1_TEXTS, VERSION2_TEXTS
from fuzz_unreliable import hang_or_crash
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.property import Disjunct

FILES = 60 * len(fuzz.ROUND)


def test_mutated_files_are_refused_or_read_correctly():
    found = list(fuzz.outcomes(range(10**6, 10**6 + FILES)))
    assert [each for each in found if each[1].failed] == []
    for file_format in fuzz.SHARES:
        kinds = {outcome.kind for number, outcome in found if fuzz.format_of(number) == file_format}
        assert kinds == {Kind.REFUSED, Kind.READ}


def _not_strict(disjunct: Disjunct) -> Disjunct:
    return replace(disjunct, strict=frozenset())


def _widened(disjunct: Disjunct) -> Disjunct:
    return replace(disjunct, upper=disjunct.upper + 0.25)


def _negated(disjunct: Disjunct) -> Disjunct:
    return replace(disjunct, matrix=-disjunct.matrix)


@pytest.mark.parametrize("fault", [_not_strict, _widened, _negated])
def test_a_wrong_property_is_noticed(fault, monkeypatch, tmp_path):
    def wrong(path):
        found = read_vnnlib(path)
        return replace(found, disjuncts=tuple(map(fault, found.disjuncts)))

    def noticed() -> int:
        count = 0
        for number, text in enumerate((VERSION1_TEXTS + VERSION2_TEXTS) * 5):
            (tmp_path / "case.vnnlib").write_text(" " * number + text)  # the length seeds the points
            try:
                fuzz_judges.judge(tmp_path / "case.vnnlib")
            except fuzz_judges.WrongError:
                count += 1
        return count

    assert noticed() == 0
    monkeypatch.setattr(fuzz_judges, "read_vnnlib", wrong)
    assert noticed() > 0


def test_a_wrong_network_is_noticed(monkeypatch, tmp_path):
    (tmp_path / "case.onnx").write_bytes(fuzz.models()[1])
    assert fuzz_judges.judge(tmp_path / "case.onnx") is Kind.READ
    for outputs in (3, 4):
        ones = np.ones(outputs, np.float32)
        monkeypatch.setattr(fuzz_judges, "runtime_function", lambda model, ones=ones: lambda image: ones)
        with pytest.raises(fuzz_judges.WrongError):
            fuzz_judges.judge(tmp_path / "case.onnx")


def test_hanging_and_crashing_are_noticed_and_the_other_files_are_read():
    found = [outcome for _, outcome in fuzz.outcomes(range(4), hang_or_crash, timeout=1.0)]
    assert [outcome.kind for outcome in found] == [Kind.READ, Kind.HUNG, Kind.CRASHED, Kind.READ]
    assert [outcome.detail for outcome in found[1:3]] == ["no answer in 1 s", "the process ended with 3"]
