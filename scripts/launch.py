"""Starts train.py or eval.py on one or several devices and waits; the scripts run_*.sh call it."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from argparse import REMAINDER
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from src.errors import ArgumentParser, UserError, run_main

PROJECT = Path(__file__).resolve().parents[1]
RUN_RANK = PROJECT / "scripts" / "run_rank.py"
ATTEMPTS = 3  # when another program takes the port before the scheduler has it
NEEDED = ("mindspore", "psutil", "yaml", "easydict")


class Mode(NamedTuple):
    """One of the shell scripts."""

    shell: str
    script: str
    runs: str  # folder that holds the runs
    words: tuple[str, ...]  # how it is called


MODES = {
    "standalone": Mode("run_train_standalone.sh", "train.py", "train_parallel", ("CONFIG",)),
    "distribute": Mode("run_train_distribute.sh", "train.py", "train_parallel", ("RANK_TABLE CONFIG",)),
    "eval": Mode("run_eval.sh", "eval.py", "eval_parallel", ("RANK_TABLE CONFIG", "CONFIG")),
}


def main(argv: list[str] | None = None) -> int:
    """Run the ranks of this server; return 0, the code of what failed first, or 128 + a signal."""
    codes = []
    return run_main(lambda: codes.append(_launch(sys.argv[1:] if argv is None else argv))) or codes[0]


def _launch(argv: list[str]) -> int:
    if not argv or argv[0] not in MODES:
        raise UserError("call " + ", ".join(f"scripts/{mode.shell}" for mode in MODES.values()) + " instead")
    mode = MODES[argv[0]]
    options, ranks, arguments = _read(mode, argv[1:])
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{sys.executable} has no {missing[0]}; activate your environment, or run "
                        f"'{sys.executable} -m pip install -r {PROJECT / 'requirements.txt'}'")  # fmt: skip
    from src.model_utils import launching
    from src.model_utils.config import load_config

    cfg = load_config(arguments, prog=mode.script)
    plan = launching.make_plan(ranks, device_target=cfg.device_target, server_id=options.server_id)
    if plan.size > 1 and cfg.device_id is not None:
        raise UserError(
            f"device_id {cfg.device_id} is one device, and {plan.size} ranks need one each; leave it out"
        )
    if plan.device_target and cfg.device_target is None:
        arguments = [*arguments, "--device_target", plan.device_target]
    script = Path(options.script or PROJECT / mode.script).resolve()
    if not script.is_file():
        raise UserError(f"the script {script} does not exist")
    command = [sys.executable, str(script), *arguments]
    for attempts_left in reversed(range(ATTEMPTS)):
        port = launching.choose_port(plan, options.master_port) if plan.through_msrun else None
        folder, failed, code = _run(Path(mode.runs).absolute(), plan, command, port, options.grace)
        if not (attempts_left and failed == "scheduler" and launching.is_taken(port)):
            break
        _say(f"port {port} was taken by another program, starting again")
    if failed:
        _report(folder, failed, code, alone=plan.size == 1)
    elif code:
        _say(f"stopped by {signal.Signals(code - 128).name}")
    return code


def _read(mode: Mode, argv: list[str]):
    """Return the launcher's options, the first word of two, and the script's arguments."""
    parser = ArgumentParser(prog=f"bash scripts/{mode.shell}", allow_abbrev=False, add_help=False)
    if "RANK_TABLE" in mode.words[0]:
        parser.add_argument("--server_id")
        parser.add_argument("--master_port", type=int, choices=range(1024, 65536), metavar="PORT")
    else:
        parser.set_defaults(server_id=None, master_port=None)
    parser.add_argument("--grace", type=float, default=60.0)
    parser.add_argument("--script")
    parser.add_argument("words", nargs=REMAINDER)
    options = parser.parse_args(argv)
    words = options.words
    count = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    if count not in {len(text.split()) for text in mode.words}:
        raise UserError(
            f"expected {' or '.join(mode.words)}, then --key value, got {count} words; "
            f"see '{parser.prog} --help'"
        )
    ranks = words[0] if count == 2 else None
    return options, ranks, ["--config_path", words[count - 1], *words[count:]]


def _run(runs: Path, plan, command: list[str], port: int | None, grace: float):
    """Run once; return the run's new folder, the name of what failed first, if any, and the exit code."""
    from src.model_utils import launching, processes

    try:
        folder = processes.new_run_folder(runs)
    except OSError as error:
        raise UserError(
            f"cannot make a folder in {runs}: {error.strerror}; call the script elsewhere"
        ) from error
    cores = launching.share_cores(_cores(), len(plan.devices))
    ranks = {
        device.rank: {"device_id": device.device_id, "cores": block}
        for device, block in zip(plan.devices, cores)
    }
    job = {"command": command, "cwd": str(Path.cwd()), "python": sys.executable, "ranks": ranks}
    (folder / "launch.json").write_text(json.dumps(job, indent=1), encoding="utf-8")
    names = tuple(f"rank_{rank}" for rank in ranks)
    how = " through msrun" if plan.through_msrun else ""
    if plan.size == 1:
        _say(f"the output goes into {folder / names[0] / 'log'}")
    else:
        _say(f"{len(names)} of {plan.size} ranks{how}, rank N with its output in {folder}/rank_N/log")

    show = processes.LogFollower(folder / names[0] / "log")
    return folder, *processes.supervise(folder, _start(folder, plan, port), show=show, grace=grace)


def _report(folder: Path, failed: str, code: int, *, alone: bool) -> None:
    """Say what failed, with its last lines; a rank alone has shown them already."""
    from src.model_utils.processes import last_lines

    name, log = failed.replace("_", " "), folder / failed / "log"
    lines = [] if alone else last_lines(log)
    if lines:
        _say(f"the last lines of {name}:", *lines)
    others = "" if alone else f"; {'the other' if failed.startswith('rank_') else 'all'} ranks were stopped"
    _say(f"error: {name} ended with code {_words(code)}{others}; its log is {log}")


def _start(folder: Path, plan, port: int | None):
    """Start each rank, or msrun, which starts them; in a session of its own, where Ctrl-C does not come."""
    from src.model_utils import launching, processes

    common = {"cwd": folder, "stdin": subprocess.DEVNULL, "start_new_session": True}
    if plan.through_msrun:
        environ = {**launching.environment(plan, os.environ), "LAUNCH_RUN": str(folder)}
        environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", os.defpath)])
        command = launching.msrun_command(plan, port, "msrun", sys.executable)
        (folder / "msrun").mkdir()
        with (folder / "msrun" / "log").open("wb") as log:
            process = subprocess.Popen(
                [*command, str(RUN_RANK)], env=environ, stdout=log, stderr=subprocess.STDOUT, **common
            )
        yield processes.Starter("msrun", process, tuple(f"rank_{device.rank}" for device in plan.devices))
        return
    for device in plan.devices:
        environ = {**launching.environment(plan, os.environ, device), "LAUNCH_RUN": str(folder)}
        process = subprocess.Popen([sys.executable, str(RUN_RANK), str(device.rank)], env=environ, **common)
        yield processes.Starter(f"rank_{device.rank}", process, (f"rank_{device.rank}",))


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _words(code: int) -> str:
    names = {128 + signum: signum.name for signum in signal.Signals}
    hint = ", perhaps for want of memory" if code == 128 + signal.SIGKILL else ""
    return f"{code} ({names[code]}{hint})" if code in names else str(code)


def _say(*lines: str) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
