"""One rank of a run, started by launch.py or by its msrun in the run's folder: `python run_rank.py [RANK]`.

launch.json says what to run. The output goes into `rank_N/log`, the exit code into `rank_N/exit_code`.
MindSpore's scheduler, which msrun starts by the same command, has the folder `scheduler/`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCHEDULER = "from mindspore.communication import init; init()"


def main() -> int:
    """Run the rank, write down how it ended and return its exit code."""
    job = json.loads(Path("launch.json").read_text(encoding="utf-8"))
    environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        name, command = "scheduler", [job["python"], "-c", SCHEDULER]
    else:
        rank = sys.argv[1] if len(sys.argv) > 1 else os.environ["RANK_ID"]
        name, command = f"rank_{rank}", job["command"]
        place = job["ranks"][rank]
        if place["cores"]:
            os.sched_setaffinity(0, place["cores"])
        elif len(job["ranks"]) > 1:
            environ.setdefault("OMP_NUM_THREADS", "1")  # more ranks than cores
        if "MS_ROLE" in os.environ:
            environ["DEVICE_ID"] = str(place["device_id"])
    folder = Path(name)
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("ab") as log:
        code = subprocess.call(
            command,
            cwd=job["cwd"],
            env={**environ, "LAUNCH_NAME": name},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    code = 128 - code if code < 0 else code
    part = folder / "exit_code.part"
    part.write_text(f"{code}\n", encoding="ascii")
    part.replace(folder / "exit_code")
    return code


if __name__ == "__main__":
    sys.exit(main())
