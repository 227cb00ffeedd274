"""Figures: what they show, drawn for print and for the page."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from reports import experiment, of_the_paper, row, verdict, write_run
from steadynet.experiments.variants import Variant
from steadynet.report.charts import Chart, Kind, Panel, Series, styles
from steadynet.report.collect import collect
from steadynet.report.drawing import draw
from steadynet.report.figures import write_figures
from steadynet.report.interactive import chart_as_json
from steadynet.report.layers import LayerShares
from steadynet.report.layout import tables_of
from steadynet.report.run_charts import run_charts
from steadynet.report.table_charts import OURS, scores, table_charts
from steadynet.verification.properties import Verdict


def charts(made):
    return {
        chart.name.removeprefix(f"{made.name}-"): chart for table in tables_of(made) for chart in table_charts(table)
    }


def test_scores_by_hand():
    made = [row("nbc", "unsat_percent", 40.0), row("rs", "unsat_percent", 10.0)]
    made += [row("nbc", "time_s", 4.0), row("rs", "time_s", 1.0)]
    made += [row("nbc", "unsat_percent", 0.0, eps=0.3), row("rs", "unsat_percent", 0.0, eps=0.3)]
    made += [row("nbc", "unsat_percent", 10.0, eps=0.2), row("rs", "unsat_percent", 20.0, eps=0.2)]
    (table,) = tables_of(experiment(made))
    found = {what.label: by for what, by in scores(table, OURS).items()}
    assert found == {"UNSAT %": {"nbc": 75.0, "rs": 62.5}, "Time (s)": {"nbc": 25.0, "rs": 100.0}}


def test_the_figures_of_each_table():
    assert list(charts(of_the_paper("rq1-mnist"))) == ["overview", "radii", "pareto"]
    assert list(charts(of_the_paper("rq3-cifar10"))) == ["bars", "pareto"]
    assert list(charts(of_the_paper("beta"))) == ["pareto", "sweep"]
    assert list(charts(of_the_paper("gamma"))) == ["pareto", "sweep"]
    assert charts(experiment([])) == {}


def test_the_sweep_of_beta_is_in_order():
    panel = next(panel for panel in charts(of_the_paper("beta"))["sweep"].panels if "Stable" in panel.title)
    assert [(series.name, series.x, series.y) for series in panel.series] == [
        (name, [0.0, 1.0, 3.0, 6.0, 9.0], [4.8, 42.1, 60.9, 71.8, 74.3]) for name in ("ours", "paper")
    ]


def test_the_bars_of_close_accuracy_leave_out_what_is_missing():
    panel = charts(of_the_paper("rq3-cifar10"))["bars"].panels[2]
    bars = {series.name: dict(zip(series.x, series.y, strict=True)) for series in panel.series}
    assert panel.title == "UNSAT %, ours"
    assert bars["nbc"]["C1, 6-7"] == 46.0
    assert bars["trades"]["C1, 1-2"] is None
    assert bars["natural"]["C1, 6-7"] == bars["natural"]["C1, 1-2"] == 0.5


def test_methods_can_be_told_apart_without_colour():
    known = styles(map(Variant.plain, ("trades", "madry", "rs", "nbc", "natural"))).values()
    for what in ("colour", "marker", "hatch"):
        assert len({getattr(style, what) for style in known}) == 5


def test_the_legend_has_each_method_once():
    panel = charts(of_the_paper("rq1-mnist"))["radii"].panels[0]
    legend = ["trades", "madry", "rs", "nbc", "paper"]
    assert [series.name for series in panel.series if series.in_legend] == legend
    assert [trace["name"] for trace in _traces(panel) if trace["showlegend"]] == legend
    assert sum(series.faint and series.has_values for series in panel.series) == 4


def _traces(panel):
    return chart_as_json(Chart("name", "Heading", "subject", [panel]))["panels"][0]["traces"]


@pytest.fixture
def crowd():
    """Four points in one place, and one elsewhere."""
    looks = styles(map(Variant.plain, ("trades", "madry", "rs", "nbc")))
    series = [Series(name, [97.0], [50.0], look, labels=[name]) for name, look in looks.items()]
    return Panel("", "", "", Kind.POINTS, [*series, Series("far", [90.0], [20.0], looks["nbc"], labels=["far"])])


def test_labels_of_points_that_coincide_do_not_on_the_page(crowd):
    positions = [trace["textposition"] for trace in _traces(crowd)]
    assert len(set(positions[:4])) == 4
    assert positions[4] == "top center"


def test_labels_of_points_that_coincide_do_not_in_print(crowd):
    figure = draw(Chart("crowd", "A crowd", "of points", [crowd]))
    FigureCanvasAgg(figure).draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].texts]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.fixture
def run(tmp_path):
    rows = [verdict(0, seconds=0.2), verdict(1, seconds=0.1, verdict=Verdict.SAT), verdict(2, verdict=Verdict.TIMEOUT)]
    write_run(tmp_path / "nbc", rows)
    return collect([tmp_path / "nbc"])[0]


def test_the_cactus_counts_what_is_decided(run):
    shares = {"nbc": LayerShares("crown", 5, [8, 4], {0.1: [0.5, 1.0]})}
    cactus, layers, training = run_charts(run, shares)
    (series,) = cactus.panels[0].series
    assert (series.x, series.y) == ([0.1, 0.2, 2.0], [1.0, 2.0, 2.0])
    assert (layers.panels[0].series[0].x, layers.panels[0].series[0].y) == (["1 (8)", "2 (4)"], [50.0, 100.0])
    assert "crown on 5 test images" in layers.note
    assert [panel.series[0].y for panel in training.panels] == [[50.0], [40.0], [1.0]]


def test_they_are_drawn_as_png_and_svg(run, tmp_path):
    made = [charts(of_the_paper("sabr"))["overview"], *run_charts(run, {})]
    made[0] = replace(made[0], name="a/b $x$", subject="$x$ <b> & _y")
    written = write_figures(made, tmp_path / "figures")
    assert len(written) == 2 * len(made)
    assert written[0].name == "a-b--x-.png"
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) > 300
                assert len(image.convert("RGB").resize((200, 200)).getcolors(40_000)) > 10
        else:
            assert len(list(ElementTree.parse(path).iter())) > 50


def test_plotly_reads_no_tags():
    chart = charts(experiment([row("<b>x</b>", "unsat_percent", 1.0), row("nbc", "unsat_percent", 2.0)]))["overview"]
    assert [trace["name"] for trace in chart_as_json(chart)["panels"][0]["traces"]] == ["&lt;b&gt;x&lt;/b&gt;", "nbc"]
