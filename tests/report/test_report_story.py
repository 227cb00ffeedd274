"""What the page says first: its headline and its examples, and how it marks numbers that mean nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from reports import experiment, row, verdict, write_run
from steadynet.data import load
from steadynet.experiments.variants import Variant
from steadynet.report.collect import collect
from steadynet.report.content import make_report
from steadynet.report.examples import examples_of
from steadynet.report.gallery import gallery_of
from steadynet.report.headline import headline_of
from steadynet.report.layout import tables_of
from steadynet.report.page import page_of
from steadynet.report.pareto import pareto_chart
from steadynet.report.tables import as_latex, as_markdown
from steadynet.report.write import report_as_markdown
from steadynet.runs.tensors import save_tensors
from steadynet.verification.properties import Verdict


def runs_on_digits(folder, proved, images=50, radii=(0.1,)):
    """One run per method with so many proofs at each radius; the other properties time out."""
    for method, count in proved.items():
        rows = [
            verdict(number, eps, Verdict.UNSAT if number < count else Verdict.TIMEOUT)
            for eps in radii
            for number in range(images)
        ]
        write_run(folder / method, rows, method=method)
    return collect([folder])[0]


@pytest.mark.parametrize(
    ("proved", "sentence"),
    [
        ({"natural": 0, "nbc": 48}, "48 of 50 images proved robust with NBC, 0 without"),
        ({"trades": 7, "trades+nbc": 40}, "40 of 50 images proved robust with NBC, 7 without"),
        ({"trades": 7, "nbc": 40}, "40 of 50 images proved robust with NBC, 7 with trades"),
        ({"rs": 9, "nbc": 4, "natural": 0}, "4 of 50 images proved robust with NBC, 9 with rs and 0 with natural"),
        ({"rs": 9, "madry": 4}, "9 of 50 images proved robust with rs, 4 with madry"),
        ({"nbc": 12}, "12 of 50 images proved robust"),
    ],
)
def test_the_headline_says_what_was_found(tmp_path, proved, sentence):
    assert headline_of(runs_on_digits(tmp_path, proved)).text == sentence


def test_the_headline_counts_attempts_where_images_are_verified_more_than_once(tmp_path):
    found = headline_of(runs_on_digits(tmp_path, {"natural": 1, "nbc": 48}, radii=(0.1, 0.2)))
    assert found.text == "96 of 100 proof attempts succeeded with NBC, 2 without"
    assert "ε is 0.1, 0.2." in found.meaning


def test_methods_are_compared_on_the_same_images_and_radii(tmp_path):
    write_run(tmp_path / "natural", [verdict(number) for number in range(10)], method="natural")
    write_run(tmp_path / "nbc", [verdict(number, eps) for number in range(5, 30) for eps in (0.1, 0.2)])
    assert headline_of(collect([tmp_path])[0]).text == "5 of 5 images proved robust with NBC, 5 without"


def test_the_headline_without_verdicts():
    assert headline_of(experiment([])).text == "Nothing is verified yet"
    found = headline_of(experiment([row("nbc", "test_acc_percent", 93.6, eps=None)]))
    assert found.text == "93.6 % of the test images are classified correctly; nothing is verified yet"


def test_page_and_summary_begin_with_the_headline(tmp_path):
    runs_on_digits(tmp_path, {"natural": 0, "nbc": 48})
    report = make_report([tmp_path])
    assert "<h1>48 of 50 images proved robust with NBC, 0 without</h1>" in page_of(report)
    assert "**48 of 50 images proved robust with NBC, 0 without.** Proved" in report_as_markdown(report, figures=False)


MADE = [row("nbc", "unsat_percent", 90.0, paper_value=97.0), row("rs", "unsat_percent", 80.0, paper_value=95.0)]
MADE += [row("nbc", "test_acc_percent", 90.0, eps=None), row("rs", "test_acc_percent", 80.0, eps=None)]


def test_numbers_at_smoke_scale_mean_nothing_and_are_never_bold():
    (earnest,), (smoke,) = (tables_of(replace(experiment(MADE), scale=scale)) for scale in ("laptop", "smoke"))
    assert any(entry.best for line in earnest.lines for entry in line.entries)
    assert not any(entry.best for line in smoke.lines for entry in line.entries)
    assert "**90.0**" in as_markdown(earnest)
    assert "**90.0**" not in as_markdown(smoke)
    assert "**97.0**" in as_markdown(smoke), "the paper's numbers mean something"
    assert "these numbers mean nothing" in as_markdown(smoke)
    assert r"\textbf{90.0}" not in as_latex([smoke])
    assert "these numbers mean nothing" in as_latex([smoke])
    assert [series.strong for series in pareto_chart(earnest).panels[0].series] == [True, False]
    assert not any(series.strong for series in pareto_chart(smoke).panels[0].series)


def test_the_headline_at_smoke_scale_has_no_numbers(tmp_path):
    found = replace(runs_on_digits(tmp_path, {"natural": 0, "nbc": 48}), scale="smoke")
    assert headline_of(found).text == "A smoke test: every step works, the numbers mean nothing"


def test_single_runs_speak_of_no_claim(tmp_path):
    """The methods of RQ1, but no grid that planned a comparison: the paper is not mentioned."""
    runs_on_digits(tmp_path, {"nbc": 48, "trades": 40, "madry": 30, "rs": 20})
    report = make_report([tmp_path])
    assert [section.claims for section in report.sections] == [[]]
    assert "claim" not in report_as_markdown(report, figures=False)


@pytest.fixture
def fooled(tmp_path):
    """Two networks on six images. The first network misreads image 0 and is fooled on images 1 to 4."""
    test = load("digits").test
    labels = [int(label) for label in test.labels[:6]]
    rows = []
    for number, label in enumerate(labels):
        name = f"counterexamples/{number}.safetensors" if number < 5 else ""
        by = "misclassified" if number == 0 else "attack"
        which = Verdict.SAT if number < 5 else Verdict.TIMEOUT
        rows.append(verdict(number, verdict=which, label=label, counterexample=name, decided_by=by))
    write_run(tmp_path / "natural", rows, method="natural")
    for found in rows[:5]:
        pixels = test.pixels(torch.tensor([found.index]))[0]
        changed = pixels if found.index == 0 else (pixels + 0.1).clamp(0, 1)
        save_tensors(tmp_path / "natural" / found.counterexample, {"input": changed}, {})
    proved = [verdict(number, label=labels[number]) for number in (0, 3, 4, 5)]
    write_run(tmp_path / "nbc", proved, method="nbc")
    return collect([tmp_path])[0]


def test_an_image_that_is_misread_as_it_is_has_no_difference(fooled):
    gallery = gallery_of([fooled])
    assert [shown.index for shown in gallery.properties if shown.is_fooled] == [1, 2, 3, 4]
    assert gallery.properties[0].difference is None


def test_examples_are_fooled_images_that_another_network_is_proved_on(fooled):
    gallery = gallery_of([fooled])
    found = examples_of(gallery, fooled)
    assert [gallery.properties[example.number].index for example in found] == [3, 4, 1]
    label = gallery.class_name(3, gallery.properties[3].label)
    assert found[0].words == [
        "Each pixel changes by at most 0.1. "
        f"The network trained without NBC then reads another class instead of {label}.",
        "For the network trained with NBC it is proved, in 0.5 s, that no such change exists.",
    ]
    assert len(found[2].words) == 1, "nothing is proved of image 1"


def test_examples_of_a_robust_network_are_proofs(tmp_path):
    test = load("digits").test
    rows = [verdict(number, label=int(test.labels[number])) for number in range(5)]
    write_run(tmp_path / "nbc", rows)
    made = collect([tmp_path])[0]
    found = examples_of(gallery_of([made]), made)
    assert len(found) == 3
    assert all("stays" in example.title for example in found)


def test_the_story_is_about_the_first_numbers_that_mean_something(tmp_path):
    runs_on_digits(tmp_path, {"natural": 0, "nbc": 48})
    report = make_report([tmp_path])
    (section,) = report.sections
    smoke = replace(section, experiment=replace(section.experiment, name="smoke", scale="smoke"))
    assert replace(report, sections=[smoke, section]).main_section is section
    assert replace(report, sections=[smoke]).main_section is smoke


def test_variants_of_nbc_are_compared_with_each_other(tmp_path):
    found = runs_on_digits(tmp_path, {"nbc": 10, "natural": 30})
    variants = [replace(run, variant=Variant(f"beta={beta}", "nbc")) for beta, run in enumerate(found.runs)]
    text = headline_of(replace(found, runs=variants)).text
    assert text == "30 of 50 images proved robust with beta=0, 10 with beta=1"
