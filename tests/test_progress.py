import json

import pytest

from src.progress import Progress

FULL = Progress(
    step=7,
    applied=5,
    bad=2,
    result={"top1": 0.5, "top5": None, "samples": 9},
    best={"top1": 0.75, "top5": None, "samples": 9, "step": 3},
    pending=True,
)


@pytest.mark.parametrize("progress", [Progress(), FULL])
def test_a_record_gives_the_same_progress(progress):
    assert Progress.from_record(json.loads(json.dumps(progress.as_record()))) == progress


def test_a_stop_is_of_one_start_alone():
    assert Progress(stopping=True).as_record() == Progress().as_record()


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"applied": 8},
        {"pending": "x"},
        {"step": 2.0},
        {"applied": "3"},
        {"bad": None},
        {"result": {"top1": "x"}},
        {"best": {}},
        {"best": {"top1": 0.5}},
        {"best": 3},
    ],
)
def test_anything_else_is_refused(changes):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Progress.from_record({**FULL.as_record(), **changes})
    record = FULL.as_record()
    del record["pending"]
    with pytest.raises(KeyError):
        Progress.from_record(record)
