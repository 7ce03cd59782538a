"""The end of a run: every rank is waited for, the first failure is told, and no process stays behind."""

import os
import signal
import time

import pytest
from launched import (
    DISTRIBUTE,
    STANDALONE,
    all_ended,
    distribute,
    finish,
    has_ended,
    prepared,
    run,
    runs,
    start,
    wait_until_all_wait,
)

from src.model_utils import processes

pytestmark = pytest.mark.alone


@pytest.fixture
def folder(tmp_path):
    return prepared(tmp_path)


def test_a_failing_rank_ends_the_others_and_gives_its_last_lines_and_code(folder):
    body = "if rank == '0': wait()\nfor i in range(90): print('line', i)\nsys.exit(7)"
    code, _, err = finish(distribute(folder, body=body))
    assert code == 7
    lines = err.splitlines()
    start = lines.index("the last lines of rank 1:")
    assert lines[start + 1 : -1] == [f"line {i}" for i in range(70, 90)]
    assert lines[-1].startswith("error: rank 1 ended with code 7; the other ranks were stopped; its log is ")
    assert all_ended(runs(folder)[0])


def test_of_ranks_that_failed_between_two_looks_the_first_is_named(tmp_path):
    for name, code, seconds in (("rank_0", 3, 20), ("rank_1", 7, 10), ("rank_2", 4, 30), ("rank_3", 0, 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "exit_code").write_text(f"{code}\n")
        os.utime(tmp_path / name / "exit_code", (seconds, seconds))
    assert processes.supervise(tmp_path, [], show=lambda: None, grace=0) == ("rank_1", 7)


def test_mindspores_warnings_do_not_hide_the_last_lines(tmp_path):
    log = tmp_path / "log"
    warning = "[WARNING] DISTRIBUTED(1): retry\n"
    log.write_text("first\nerror: no data\n" + 30 * warning)
    assert processes.last_lines(log) == ["first", "error: no data"]
    log.write_text(30 * warning)
    assert processes.last_lines(log) == 20 * [warning.strip()]


def test_the_rank_that_failed_first_is_named_and_not_one_that_fell_with_it(folder):
    body = "if rank == '1': time.sleep(1); sys.exit(7)\nsignal.signal(15, lambda *_: sys.exit(3))\nwait()"
    code, _, err = finish(distribute(folder, body=body))
    assert code == 7
    assert (runs(folder)[0] / "rank_0" / "exit_code").read_text() == "3\n"
    assert "rank 1 ended with code 7" in err


def test_a_rank_that_a_signal_ends_gives_128_and_the_signal(folder):
    code, _, err = finish(distribute(folder, body="if rank == '1': os.kill(os.getpid(), 11)\nwait()"))
    assert code == 139
    assert "rank 1 ended with code 139 (SIGSEGV)" in err


def test_a_rank_deaf_to_signals_is_killed_after_the_grace(folder):
    body = "signal.signal(15, signal.SIG_IGN)\nif rank == '1': time.sleep(1); sys.exit(7)\nwait()"
    begin = time.monotonic()
    code, _, _ = finish(distribute(folder, body=body, grace="1"))
    assert code == 7
    assert time.monotonic() - begin < 30
    assert all_ended(runs(folder)[0])


def test_children_of_a_rank_in_sessions_of_their_own_are_ended_too(folder):
    body = "import subprocess\nchild = subprocess.Popen(['sleep', '100'], start_new_session=True)\n"
    code, out, _ = run(folder, STANDALONE, "my config.yml", body=body + "print(child.pid); sys.exit(7)")
    assert code == 7
    assert has_ended(int(out.splitlines()[-1]))


def test_a_rank_whose_parent_is_killed_is_noticed_and_ended(folder):
    code, _, err = finish(distribute(folder, body="if rank == '1': os.kill(os.getppid(), 9)\nwait()"))
    assert code == 137
    assert "rank 1 ended with code 137 (SIGKILL" in err
    assert all_ended(runs(folder)[0])


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_reaches_all_ranks(folder, signum, code):
    body = "heard = []\nsignal.signal(2, lambda *_: heard.append(print('heard')))\n"
    body += "signal.signal(15, signal.getsignal(2))\nprint('waiting')\n"
    body += "while not heard: time.sleep(0.05)\ntime.sleep(1)"  # pause() would miss one that came before it
    process = distribute(folder, body=body)
    wait_until_all_wait(folder)
    os.killpg(process.pid, signum)  # as the terminal does
    assert finish(process)[0] == code
    (run_folder,) = runs(folder)
    assert all((run_folder / f"rank_{rank}" / "log").read_text().count("heard") == 1 for rank in (0, 1))
    assert all_ended(run_folder)


def test_a_second_signal_kills_at_once(folder):
    body = "signal.signal(2, lambda *_: print('heard'))\nsignal.signal(15, signal.SIG_IGN)\nwait()\nwait()"
    process = distribute(folder, body=body, grace="600")
    wait_until_all_wait(folder)
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 30
    while "heard" not in (runs(folder)[0] / "rank_1" / "log").read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] == 130
    assert all_ended(runs(folder)[0])


def test_under_msrun_a_failing_rank_ends_all_and_gives_its_code(folder):
    body = "if rank == '1': time.sleep(1); print('oh no'); sys.exit(7)\nwait()"  # the other has begun, too
    code, _, err = run(folder, DISTRIBUTE, "2", "my config.yml", body=body)
    assert code == 7
    assert "oh no\nerror: rank 1 ended with code 7" in err
    assert all_ended(runs(folder)[0])


def test_under_msrun_a_signal_reaches_all_ranks(folder):
    body = "try: wait()\nexcept KeyboardInterrupt: time.sleep(2.5 * int(rank)); print('saved'); sys.exit(130)"
    process = start(folder, DISTRIBUTE, "2", "my config.yml", body=body, grace="20")
    wait_until_all_wait(folder)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process)[0] == 130
    (run_folder,) = runs(folder)
    assert all((run_folder / f"rank_{rank}" / "log").read_text().endswith("saved\n") for rank in (0, 1))
    assert all_ended(run_folder)
