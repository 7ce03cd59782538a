import multiprocessing
import threading
import time

import pytest

from src.errors import UserError
from src.model_utils.once import once


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "marker.lock"


def enter(marker, work, *, me="0", members=("0",), late_seconds=0.0):
    return once(marker, work, me=me, members=members, wait_seconds=10, late_seconds=late_seconds)


def meet(marker, log, name, number):
    """One process of a meeting: notes what it does in `log`."""

    def note(word):
        with log.open("a") as file:
            file.write(f"{word}\n")

    with enter(marker, lambda: note("work"), me=name, members=[f"{i}" for i in range(number)]):
        note("ready")
        deadline = time.monotonic() + 10
        while log.read_text().count("ready") < number and time.monotonic() < deadline:
            time.sleep(0.01)
        note("end")


def test_the_work_is_done_before_the_block_and_the_marker_is_gone_after_it(marker):
    steps = []
    with enter(marker, lambda: steps.append(marker.exists())):
        assert steps == [True]
        assert "done" in marker.read_text()
    assert not marker.exists()


def test_of_many_processes_one_works_and_the_last_removes_the_marker(marker, tmp_path):
    log = tmp_path / "log"
    marker.write_text("done \n")  # of an earlier job
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=meet, args=(marker, log, f"{i}", 6)) for i in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert log.read_text().splitlines() == ["work"] + ["ready"] * 6 + ["end"] * 6
    assert not marker.exists()


@pytest.mark.parametrize("left", ["begun 0\n", "begun 0\ndone \n", "begun 0\nfailed no room\n", "\0\1"])
def test_a_marker_that_nobody_holds_means_nothing(marker, left):
    marker.write_text(left)
    steps = []
    with enter(marker, lambda: steps.append("work")):
        pass
    assert steps == ["work"]
    assert not marker.exists()


def test_an_earlier_success_does_not_hide_that_a_process_died(marker):
    marker.write_text("begun 0\ndone \n")
    process = multiprocessing.get_context("fork").Process(
        target=lambda: enter(marker, lambda: time.sleep(60)).__enter__()
    )
    process.start()
    while marker.read_text() != "begun 0\n":
        time.sleep(0.01)
    threading.Timer(0.3, process.kill).start()
    with pytest.raises(UserError, match="process 0 died"):
        enter(marker, failing, me="1", members=("0", "1")).__enter__()
    process.join()


def failing():
    raise UserError("no\nroom")


def test_a_failure_passes_through_and_leaves_no_marker(marker):
    with pytest.raises(UserError, match="no\nroom"), enter(marker, failing):
        pytest.fail("the block ran")
    assert not marker.exists()


def test_a_failure_stays_for_members_that_come_late_but_not_for_ever(marker):
    begin = time.monotonic()
    with pytest.raises(UserError), enter(marker, failing, members=("0", "1"), late_seconds=0.4):
        pass
    assert 0.4 <= time.monotonic() - begin < 5


def test_an_error_in_the_block_is_no_failure_of_the_work(marker):
    begin = time.monotonic()
    with pytest.raises(ZeroDivisionError), enter(marker, lambda: None, members=("0", "1"), late_seconds=60):
        raise ZeroDivisionError
    assert time.monotonic() - begin < 5
    assert not marker.exists()


def test_a_folder_that_cannot_hold_the_marker_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*/none/m: No such file or directory; set TMPDIR"):
        enter(tmp_path / "none/m", failing).__enter__()


def test_a_link_in_the_place_of_the_marker_is_not_followed(tmp_path, marker):
    (tmp_path / "precious").write_text("precious")
    marker.symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot write"):
        enter(marker, failing).__enter__()
    assert (tmp_path / "precious").read_text() == "precious"
