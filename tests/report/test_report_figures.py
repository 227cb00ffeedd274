"""Figures: what they show, drawn for print and for the page."""

from __future__ import annotations

import itertools
import math
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
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
from steadynet.report.pareto import pareto_chart, stretched, undominated
from steadynet.report.run_charts import run_charts
from steadynet.report.table_charts import OURS, scores, table_charts
from steadynet.report.verdict_chart import verdict_chart
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
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


def three_numbers(model, method, accuracy, proved, seconds, eps=0.1):
    """The rows of one network."""
    values = [
        ("test_acc_percent", None, accuracy),
        ("unsat_percent", eps, proved),
        ("time_unsat_timeout_s", eps, seconds),
    ]
    return [row(method, metric, value, radius, model=model) for metric, radius, value in values]


def test_the_pareto_front_of_three_numbers():
    # trades beats madry in all three; rs is the fastest; natural the most accurate; ibp equals trades; nothing was
    # proved or timed out for sabr, which is otherwise as good as rs
    points = {
        "natural": (99.0, 0.0, -5.0),
        "trades": (98.0, 50.0, -1.0),
        "madry": (97.0, 40.0, -2.0),
        "rs": (96.0, 45.0, -0.1),
        "ibp": (98.0, 50.0, -1.0),
        "sabr": (96.0, 45.0, -math.inf),
    }
    found = undominated(list(points.values()))
    assert [name for name, best in zip(points, found, strict=True) if best] == ["natural", "trades", "rs", "ibp"]


def test_the_pareto_figure_by_hand():
    rows = three_numbers("M1", "natural", 99.0, 0.0, 5.0) + three_numbers("M1", "trades", 98.0, 50.0, 1.0)
    rows += three_numbers("M1", "madry", 97.0, 40.0, 2.0) + three_numbers("M1", "rs", 96.0, 45.0, 0.1)
    rows += three_numbers("M1", "sabr", 90.0, 40.0, None)
    rows += three_numbers("C1", "trades", 60.0, 20.0, 0.01, 0.3) + three_numbers("C1", "rs", 50.0, 30.0, 0.02, 0.3)
    rows += three_numbers("C2", "rs", 50.0, 30.0, 0.02, 0.3)  # alone: nothing to compare
    (chart,) = [pareto_chart(table) for table in tables_of(experiment(rows))]
    first, second = chart.panels
    assert (first.title, second.title) == ("M1, ε 0.1", "C1, ε 0.3")
    line, best, beaten = first.series
    assert (best.labels, beaten.labels) == (["natural", "trades", "rs"], ["madry", "sabr"])
    assert (best.strong, beaten.strong) == (True, False)
    assert best.shades == [5.0, 1.0, 0.1]
    assert beaten.shades == [2.0, None]
    assert list(zip(line.x, line.y, strict=True)) == [
        (stretched(98.0), stretched(50.0)),
        (stretched(99.0), stretched(0.0)),
    ], "rs is worse than trades in accuracy and proofs: it is on the front for its time only"
    assert (first.shading.low, first.shading.high) == (0.01, 5.0)
    assert second.shading == first.shading, "colours mean the same in all panels"
    assert best.hover[1] == "trades: accuracy 98.0 %, proved 50.0 %, 1.00 s per proof"


def test_the_pareto_figure_of_very_many_methods(tmp_path):
    """Twenty-two methods in a small corner of the plot, and one far away: no label covers another."""
    rows = three_numbers("M1", "far", 11.0, 0.0, 4.0)
    for number in range(21):
        rows += three_numbers(
            "M1", f"method-{number}+nbc", 97 + 0.05 * (number % 5), 90 + 0.3 * (number // 5), 0.1 + number
        )
    (chart,) = [pareto_chart(table) for table in tables_of(experiment(rows))]
    figure = draw(chart)
    FigureCanvasAgg(figure).draw()
    boxes = [Text.get_window_extent(label) for label in figure.axes[0].texts]  # without its line
    assert len(boxes) == 22
    assert not any(_covers(one, other) for one, other in itertools.combinations(boxes, 2))
    shown = chart_as_json(chart)["panels"][0]
    assert len(shown["layout"]["annotations"]) == 22
    assert shown["wide"]
    (bar,) = [trace for trace in shown["traces"] if "showscale" in trace["marker"]]
    assert bar["marker"]["colorbar"]["ticktext"] == ["0.1", "1", "10"]
    assert list(charts(experiment(rows))) == ["pareto"], "bars of so many methods could not be told apart"


def _covers(one, other, slack=2.0):
    """Whether two boxes overlap by more than some pixels: a box has room for letters that are not there."""
    return (
        min(one.x1, other.x1) - max(one.x0, other.x0) > slack and min(one.y1, other.y1) - max(one.y0, other.y0) > slack
    )


@pytest.fixture
def run(tmp_path):
    rows = [verdict(0, seconds=0.2), verdict(1, seconds=0.1, verdict=Verdict.SAT), verdict(2, verdict=Verdict.TIMEOUT)]
    write_run(tmp_path / "nbc", rows)
    RunDirectory(tmp_path / "nbc").add_metrics(EpochMetrics(2, "nbc", 0.1, 1e-3, 2.0, {"cross_entropy": 0.5}, 0.6, 0.5))
    return collect([tmp_path / "nbc"])[0]


def test_the_cactus_counts_what_is_decided(run):
    shares = {"nbc": LayerShares("crown", 5, [8, 4], {0.1: [0.5, 1.0]})}
    cactus, layers, training = run_charts(run, shares)
    (series,) = cactus.panels[0].series
    assert (series.x, series.y) == ([0.05, 0.1, 0.2, 2.0], [0.0, 1.0, 2.0, 2.0])
    assert (layers.panels[0].series[0].x, layers.panels[0].series[0].y) == (["1 (8)", "2 (4)"], [50.0, 100.0])
    assert "crown on 5 test images" in layers.note
    assert [panel.series[0].y for panel in training.panels] == [[50.0, 60.0], [40.0, 50.0], [1.0, 0.5]]


def test_a_log_axis_has_whole_numbers(run):
    panel = run_charts(run, {})[0].panels[0]
    assert panel.tick_names == {0.05: "0.05", 0.1: "0.1", 0.2: "0.2", 0.5: "0.5", 1.0: "1", 2.0: "2"}
    axis = chart_as_json(Chart("name", "Heading", "subject", [panel]))["panels"][0]["layout"]["xaxis"]
    assert (axis["type"], axis["ticktext"]) == ("log", ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    figure = draw(Chart("name", "Heading", "subject", [panel]))
    FigureCanvasAgg(figure).draw()
    ticks = figure.axes[0].get_xticklabels(which="both")
    assert [tick.get_text() for tick in ticks] == ["0.05", "0.1", "0.2", "0.5", "1", "2"]


def test_a_figure_has_more_than_one_point(run):
    """One epoch, one bar or one point is no figure: the tables have its number."""
    (only,) = run.runs
    short = replace(run, runs=[replace(only, epochs=only.epochs[:1])])
    one_layer = {"nbc": LayerShares("crown", 5, [8], {0.1: [0.5]})}
    assert [chart.name for chart in run_charts(short, one_layer)] == ["runs-digits-cactus"]
    one_radius = [row("nbc", "unsat_percent", 90.0), row("nbc", "stable_percent", 80.0)]
    assert charts(experiment(one_radius)) == {}
    assert verdict_chart(run) is None


VERDICTS = [Verdict.UNSAT, Verdict.UNSAT, Verdict.SAT, Verdict.TIMEOUT]


def verified(tmp_path, methods, radii):
    """Runs with two proofs, one counterexample and one time-out per radius."""
    for method in methods:
        rows = [verdict(number, eps, which) for eps in radii for number, which in enumerate(VERDICTS)]
        write_run(tmp_path / method, rows, method=method)
    return collect([tmp_path])[0]


def test_proved_undecided_and_refuted_against_the_radius(tmp_path):
    chart = verdict_chart(verified(tmp_path, ("natural", "nbc"), (0.1, 0.2)))
    assert [panel.title for panel in chart.panels] == ["M1, natural", "M1, nbc"]
    proved, undecided, refuted = chart.panels[1].series
    assert (proved.name, proved.x, proved.y, proved.labels) == ("proved", ["0.1", "0.2"], [50.0, 50.0], ["2", "2"])
    assert (undecided.name, undecided.y) == ("undecided", [25.0, 25.0])
    assert (refuted.name, refuted.y) == ("refuted", [25.0, 25.0])
    assert proved.hover[1] == "nbc, ε 0.2: 2 of 4 proved"
    shown = chart_as_json(chart)["panels"][1]
    assert shown["layout"]["barmode"] == "stack"
    assert "nbc, ε 0.1: 2 of 4 proved; nbc, ε 0.1: 1 of 4 undecided" in shown["alt"]
    FigureCanvasAgg(draw(chart)).draw()


def test_a_radius_that_was_not_verified_keeps_its_place(tmp_path):
    write_run(tmp_path / "natural", [verdict(0)], method="natural")
    write_run(tmp_path / "nbc", [verdict(0), verdict(0, eps=0.2)])
    first = verdict_chart(collect([tmp_path])[0]).panels[0].series[0]
    assert (first.x, first.y, first.labels) == (["0.1", "0.2"], [100.0, None], ["1", ""])
    assert first.hover[1] == "natural, ε 0.2: not verified"


def test_one_radius_is_one_panel_with_a_bar_per_method(tmp_path):
    (panel,) = verdict_chart(verified(tmp_path, ("natural", "nbc"), (0.1,))).panels
    assert (panel.title, panel.series[0].x) == ("M1, ε 0.1", ["natural", "nbc"])


def test_the_cactus_shows_one_seed_of_many(run):
    (only,) = run.runs
    runs = [replace(only, name=f"{seed}", seed=seed, variant=Variant.plain(f"m{seed // 3}")) for seed in range(15)]
    cactus = run_charts(replace(run, runs=runs), {})[0]
    assert [series.name for series in cactus.panels[0].series] == ["m0", "m1", "m2", "m3", "m4"]
    assert "only the first seed is shown" in cactus.note
    few = run_charts(replace(run, runs=runs[:3]), {})[0]
    assert [series.name for series in few.panels[0].series] == ["m0, seed 0", "m0, seed 1", "m0, seed 2"]


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
