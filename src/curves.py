"""A picture of a run: loss, learning rate, accuracy and speed over the steps."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from src.atomic import replacing
from src.metrics_file import Row

log = logging.getLogger(__name__)

POINTS = 1000  # of a curve; more steps are averaged


def draw_curves(path: Path, rows: Sequence[Row], title: str) -> None:
    """Write a PNG; a run without matplotlib, or on a full disk, goes on without it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        log.warning("no %s: matplotlib is not installed; pip install -r requirements.txt", path.name)
        return
    figure = Figure(figsize=(9, 6), dpi=100)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.09, top=0.89, hspace=0.38, wspace=0.2)
    (loss, accuracy), (rate, speed) = figure.subplots(2, 2)
    figure.suptitle(title, parse_math=False)
    _curve(loss, rows, "loss", "training loss")
    _curve(rate, rows, "learning_rate", "learning rate")
    _curve(speed, rows, "images_per_second", "images per second")
    speed.set_ylim(bottom=0)
    tested = [row for row in rows if row.top1 is not None]
    for name in ("top1", "top5"):
        points = [(row.step, 100 * getattr(row, name)) for row in tested if getattr(row, name) is not None]
        if points:
            accuracy.plot(*zip(*points), marker=".", label=f"top-{name[-1]}, last {points[-1][1]:.2f} %")
    accuracy.set_title("evaluation, %")
    if tested:
        accuracy.legend()
    else:
        accuracy.text(0.5, 0.5, "no evaluation yet", ha="center", transform=accuracy.transAxes)
    for axes in (loss, accuracy, rate, speed):
        axes.set_xlabel("step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    try:
        with replacing(path) as stream:
            FigureCanvasAgg(figure).print_png(stream)
    except OSError as error:
        log.warning("cannot write %s: %s; the run goes on without it", path, error.strerror)


def _curve(axes, rows: Sequence[Row], name: str, title: str) -> None:
    points = np.array(
        [(row.step, getattr(row, name)) for row in rows if getattr(row, name) is not None], np.float64
    ).reshape(-1, 2)
    points = points[np.isfinite(points[:, 1])]
    axes.set_title(title)
    if not len(points):
        return
    starts = np.arange(0, len(points), -(-len(points) // POINTS))
    means = np.add.reduceat(points, starts) / np.diff([*starts, len(points)])[:, None]
    axes.plot(*means.T, linewidth=1, marker="." if len(means) == 1 else None)
