"""Records in JSON files: what is written reads back; what does not fit is said in one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from steadynet.errors import UserError
from steadynet.files import read_record, record_from, write_json


@dataclasses.dataclass(frozen=True)
class Inner:
    eps: float
    share: float | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    count: int
    kind: Literal["one", "other"]
    inner: Inner
    parts: tuple[Inner, ...] = ()
    terms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    number_or_text: int | str | None = None
    anything: Any = None


FULL = Outer(3, "one", Inner(0.1), (Inner(0.2, 0.5), Inner(0.3)), {"a": 1.5}, "text", [1, {"b": None}])
LEAST: dict[str, Any] = {"count": 3, "kind": "one", "inner": {"eps": 0.1}}


def test_a_record_reads_back_as_itself(tmp_path):
    write_json(tmp_path / "record.json", dataclasses.asdict(FULL))
    assert read_record(tmp_path / "record.json", Outer) == FULL


def test_what_has_a_default_may_be_missing():
    assert record_from(Outer, LEAST) == Outer(3, "one", Inner(0.1))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "the content is not an object"),
        ({"count": 3, "kind": "one"}, "it has no inner"),
        (LEAST | {"cuont": 1}, "unknown key cuont"),
        (LEAST | {"count": 3.5}, "count = 3.5 must be a whole number"),
        (LEAST | {"count": True}, "count = True must be a whole number"),
        (LEAST | {"kind": "two"}, "kind = 'two' must be one or other"),
        (LEAST | {"inner": 3}, "inner is not an object"),
        (LEAST | {"inner": {"eps": None}}, "inner.eps = None must be a number"),
        (LEAST | {"inner": {}}, "it has no inner.eps"),
        (LEAST | {"parts": [{"eps": 1}, {"esp": 1}]}, "unknown key parts[1].esp"),
        (LEAST | {"parts": 3}, "parts = 3 must be"),
        (LEAST | {"terms": [1]}, "terms = [1] must be"),
        (LEAST | {"terms": {"a": "b"}}, "terms.a = 'b' must be a number"),
        (LEAST | {"number_or_text": 1.5}, "number_or_text = 1.5 must be a whole number or text"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(content, said, tmp_path):
    write_json(tmp_path / "record.json", content)
    with pytest.raises(UserError) as caught:
        read_record(tmp_path / "record.json", Outer)
    assert str(caught.value).startswith(f"{tmp_path / 'record.json'} is damaged ({said}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_not_json_is_said(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*record\.json: No such file"):
        read_record(tmp_path / "record.json", Outer)
    (tmp_path / "record.json").write_text("{")
    with pytest.raises(UserError, match=r"record\.json is damaged"):
        read_record(tmp_path / "record.json", Outer)
