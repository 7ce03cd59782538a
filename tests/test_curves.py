import math

import numpy as np
from PIL import Image

from src.curves import draw_curves
from src.metrics_file import Row


def run(count):
    rows = []
    for step in range(1, count + 1):
        loss, top1 = (math.nan if step == 3 else 1 / step), (0.5 if step % 4 == 0 else None)
        rows.append(Row(step, 0, loss=loss, learning_rate=0.1, images_per_second=9.0 + step, top1=top1))
    return rows


def coloured(path):
    """Pixels that are neither black, white nor grey: curves."""
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.ptp(pixels, axis=2) > 40).sum())


def test_a_picture_of_the_run_is_drawn(tmp_path):
    path = tmp_path / "curves.png"
    draw_curves(path, run(1), "one step")
    one = coloured(path)
    curves = [row._replace(top1=None) for row in run(40)]
    draw_curves(path, curves, "forty steps")
    forty = coloured(path)
    assert forty > one + 500
    draw_curves(path, run(40), "forty steps and ten evaluations")
    assert coloured(path) > forty + 200
    assert Image.open(path).size == (900, 600)
    assert [p.name for p in tmp_path.iterdir()] == ["curves.png"]


def test_a_million_steps_are_averaged(tmp_path):
    draw_curves(tmp_path / "curves.png", run(200_000), "long")
    assert coloured(tmp_path / "curves.png") > 500


def test_a_run_goes_on_without_a_place_for_its_picture(tmp_path, caplog):
    draw_curves(tmp_path / "nowhere" / "curves.png", run(3), "x")
    assert "the run goes on" in caplog.text
