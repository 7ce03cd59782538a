import resource
import signal
import subprocess
import sys
from pathlib import Path

import mindspore  # noqa: F401 - it cannot be imported once tensorboardX has loaded protobuf

from src.events_file import EventsFile
from src.metrics_file import Row

ROOT = Path(__file__).parents[1]


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    (path,) = folder.iterdir()
    data, found = path.read_bytes(), []
    while data:  # length, its checksum, the event, its checksum
        size = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def test_the_numbers_of_a_row_are_points_and_what_was_not_measured_is_none(tmp_path):
    file = EventsFile(tmp_path / "tb", 0)
    file.append(Row(7, 2, loss=1.5, top1=0.25))
    file.close()
    points = {(v.tag, e.step): v.simple_value for e in events(tmp_path / "tb") for v in e.summary.value}
    assert points == {("epoch", 7): 2.0, ("loss", 7): 1.5, ("top1", 7): 0.25}


def test_a_resumed_run_hides_the_points_that_are_made_again(tmp_path):
    from tensorboardX.proto.event_pb2 import SessionLog

    EventsFile(tmp_path / "tb", 5).close()
    assert [(e.step, e.session_log.status) for e in events(tmp_path / "tb")][-1] == (6, SessionLog.START)


def test_a_full_disk_is_told_once_and_nobody_waits_for_it(tmp_path):
    program = """
import sys
from pathlib import Path
from src.events_file import EventsFile
from src.metrics_file import Row
file = EventsFile(Path(sys.argv[1]), 0)
for step in range(1000):
    file.append(Row(step, 0, loss=1.0, learning_rate=0.1, top1=0.5))
file.close()
"""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "tb")], cwd=ROOT, timeout=60, preexec_fn=limit,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr.count("\n") == 1
    assert "the run goes on without it" in done.stderr


def test_a_place_that_takes_no_folder_is_told(tmp_path, caplog):
    (tmp_path / "tb").write_text("")
    EventsFile(tmp_path / "tb", 3).append(Row(4, 0, loss=1.0))
    assert caplog.text.count("the run goes on without it") == 1
