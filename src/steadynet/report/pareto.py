"""The figure of three numbers that a network is judged by: test accuracy, proved properties, seconds per proof."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from steadynet.report.charts import GREY, Chart, Kind, Panel, Series, ShadeScale, Style, chart_of
from steadynet.report.layout import Line, Table
from steadynet.report.metrics import metric_named, radius

ACCURACY, PROVED, SECONDS = "test_acc_percent", "unsat_percent", "time_unsat_timeout_s"
TICK_DISTANCE, ENOUGH_TICKS = 0.09, 4  # the least distance between two ticks, as a share of the axis; how many to find
# The ticks: first the round numbers of an axis towards 100 %, then multiples of smaller and smaller steps.
ROUND = (0.0, 50.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0)
STEPS = (10.0, 5.0, 2.0, 1.0, 0.5, 0.2)
NOTE = (
    "Each point is one method, the mean over its seeds; further up and to the right is better. The colour is the mean "
    "time per property that was proved or timed out; a white point had no such property. Both axes are stretched "
    "towards 100 %, where methods lie close together. A method with a bold name is not beaten: each other method is "
    "worse in at least one of the three numbers. The dashed line joins the best in accuracy and proofs alone."
)


@dataclass(frozen=True)
class Network:
    """The three numbers of one method. ``seconds`` is None if no property was proved or timed out."""

    label: str
    accuracy: float
    proved: float
    seconds: float | None


def pareto_chart(table: Table) -> Chart | None:
    """Test accuracy against proved properties, coloured by seconds per proof: one panel per model and radius."""
    found = compared_networks(table)
    scale = _scale([network for networks in found.values() for network in networks])
    panels = [_panel(title, networks, scale, bold=not table.warning) for title, networks in found.items()]
    across = 1 if any(panel.is_wide for panel in panels) else 3
    return chart_of(f"{table.name}-pareto", "Accuracy, proofs and their time", table.title, panels, NOTE, across)


def compared_networks(table: Table) -> dict[str, list[Network]]:
    """The methods that can be compared, by model and radius in words. There are two or more for each."""
    lines = {(line.metric.name, line.eps): line for line in table.lines}
    accuracy = lines.get((ACCURACY, None))
    if accuracy is None:
        return {}
    found: dict[str, list[Network]] = {}
    for model in table.models:
        for eps in [eps for name, eps in lines if name == PROVED]:
            networks = _networks(table, model, accuracy, lines[PROVED, eps], lines.get((SECONDS, eps)))
            if len(networks) > 1:
                found[f"{model}, ε {radius(eps)}"] = networks
    return found


def _networks(table: Table, model: str, accuracy: Line, proved: Line, seconds: Line | None) -> list[Network]:
    """The methods of one model that have an accuracy and a share of proved properties."""
    result = []
    for column in table.columns:
        of_column = [table.entries(line)[column].value if line else None for line in (accuracy, proved, seconds)]
        if column[0] == model and of_column[0] is not None and of_column[1] is not None:
            result.append(Network(column[1], of_column[0], of_column[1], of_column[2]))
    return result


def _scale(networks: Iterable[Network]) -> ShadeScale | None:
    """One scale for all panels, so that their colours can be compared."""
    seconds = [network.seconds for network in networks if network.seconds]
    return ShadeScale("seconds per proof", min(seconds), max(seconds)) if seconds else None


def _panel(title: str, networks: Sequence[Network], scale: ShadeScale | None, bold: bool) -> Panel:
    best = not_beaten(networks)
    others = [network for network in networks if network not in best]
    front = pareto_front([(network.accuracy, network.proved) for network in networks])
    style = Style(GREY, "", "", dashed=True)
    x, y = [[stretched(value) for value in values] for values in zip(*front, strict=True)]
    line = [Series("best in accuracy and proofs", x, list(y), style)] if len(front) > 1 else []
    points = [_points("not beaten", best, strong=bold), _points("beaten", others)]
    return Panel(
        title,
        "test accuracy %",
        "proved (UNSAT) %",
        Kind.SHADED,
        [series for series in (*line, *points) if series.has_values],
        tick_names=ticks([network.accuracy for network in networks]),
        y_tick_names=ticks([network.proved for network in networks]),
        shading=scale,
    )


def not_beaten(networks: Sequence[Network]) -> list[Network]:
    """The networks that no other beats in accuracy, proved properties and time per proof together."""
    is_best = undominated([(one.accuracy, one.proved, _speed(one)) for one in networks])
    return [network for network, on_front in zip(networks, is_best, strict=True) if on_front]


def _points(name: str, networks: Sequence[Network], strong: bool = False) -> Series:
    time = metric_named(SECONDS)
    return Series(
        name,
        [stretched(network.accuracy) for network in networks],
        [stretched(network.proved) for network in networks],
        Style(GREY, "o", ""),
        [
            f"{one.label}: accuracy {one.accuracy:.1f} %, proved {one.proved:.1f} %, "
            f"{time.written(one.seconds)} s per proof"
            for one in networks
        ],
        labels=[network.label for network in networks],
        shades=[network.seconds for network in networks],
        strong=strong,
    )


def _speed(network: Network) -> float:
    return -math.inf if network.seconds is None else -network.seconds


def undominated(points: Sequence[Sequence[float]]) -> list[bool]:
    """Whether each point is on the Pareto front: no other is at least as high in every coordinate and higher in one.

    >>> undominated([(1, 3, 0), (2, 2, 0), (1, 1, 0), (1, 1, 5), (2, 2, 0)])
    [True, True, False, True, True]
    """

    def beats(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(mine >= yours for mine, yours in pairs) and any(mine > yours for mine, yours in pairs)

    return [not any(beats(other, point) for other in points) for point in points]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other point beats in both coordinates, from left to right.

    >>> pareto_front([(1, 3), (2, 2), (1, 1), (3, 0)])
    [(1, 3), (2, 2), (3, 0)]
    """
    kept = {point for point, on_front in zip(points, undominated(points), strict=True) if on_front}
    return sorted(kept)


def stretched(percent: float) -> float:
    """Where a percentage lies on an axis that is stretched towards 100 %: at minus the logarithm of what is missing.

    From 50 to 75 % is as far as from 98 to 99 %. All percentages from 99.5 lie at the same place.

    >>> [round(stretched(percent), 2) for percent in (0, 90, 98, 100)]
    [-2.0, -1.0, -0.3, 0.3]
    """
    return -math.log10(max(100.0 - percent, 0.5))


def ticks(values: Sequence[float]) -> dict[float, str]:
    """The ticks of a stretched axis with these values on it: a few round numbers, not too close to each other.

    >>> list(ticks([40.0, 97.0]).values()), list(ticks([98.1, 99.2]).values())
    (['50', '80', '90', '95'], ['98.2', '98.5', '98.8', '99', '99.2'])
    """
    low, high = stretched(min(values)), stretched(max(values))
    margin, distance = 0.05 * (high - low), TICK_DISTANCE * (high - low) or 1.0
    chosen: dict[float, str] = {}
    for candidates in (ROUND, *([number * step for number in range(round(100 / step))] for step in STEPS)):
        for tick in candidates:
            place = stretched(tick)
            is_free = all(abs(place - other) >= distance for other in chosen)
            if low - margin <= place <= high + margin and is_free:
                chosen[place] = f"{tick:g}"
        if len(chosen) >= ENOUGH_TICKS:
            break
    return dict(sorted(chosen.items()))
