import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.alone

ROOT = Path(__file__).parents[1]
SIGNALS = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}


class Program:
    """A Python program that says `ready`; then it gets signals."""

    def __init__(self, body):
        text = """
            import ctypes, os, signal, sys, threading, time
            from src.errors import run_main
            from src.signals import StopSignals
            signals = StopSignals()
            def spoil():  # as MindSpore does
                ctypes.CDLL(None).signal(2, ctypes.c_void_p(0))
            def ready():
                print("ready", flush=True)
        """
        main = "\nwith signals.watched():\n    code = run_main(main)\nsys.exit(code)\n"
        text = textwrap.dedent(text) + textwrap.dedent(body) + main
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, **pipes)
        assert self.process.stdout.readline() == "ready\n"

    def send(self, *signums, pause=0.3):
        for signum in signums:
            self.process.send_signal(signum)
            time.sleep(pause)

    def end(self):
        """Exit code, output and seconds until the end."""
        start = time.monotonic()
        output = self.process.stdout.read()
        return self.process.wait(), output, time.monotonic() - start


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_program_ends_with_a_line_and_the_code_of_the_signal(signum):
    program = Program("""
        def main():
            try:
                ready(); time.sleep(60)
            finally:
                time.sleep(0.5); print("cleaned up", flush=True)
    """)
    program.send(signum)
    line, code = SIGNALS[signum]
    assert program.end()[:2] == (code, f"cleaned up\n{line}\n")


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_loop_sees_the_signal_and_ends_itself_even_without_pythons_handler(signum):
    program = Program("""
        def main():
            with signals.deferred("the loop ends soon"):
                ready()
                while not signals.signum:
                    spoil(); time.sleep(0.01)
            time.sleep(0.5)
            print("saved", signals.signum, flush=True)
    """)
    program.send(signum)
    assert program.end()[:2] == (0, f"{signum.name}: the loop ends soon\nsaved {signum.value}\n")


@pytest.mark.parametrize(("first", "second"), [(s, t) for s in SIGNALS for t in SIGNALS])
def test_a_second_signal_ends_the_program_at_once_even_in_native_code(first, second):
    program = Program("""
        def main():
            with signals.deferred("the loop ends soon"):
                ready(); spoil()
                ctypes.CDLL(None).pause()  # native code, without the interpreter's lock
                ctypes.CDLL(None).sleep(30)
                ctypes.CDLL(None).sleep(30)
    """)
    program.send(first, second)
    code, _, seconds = program.end()
    assert code == SIGNALS[first][1]
    assert seconds < 3


def test_native_code_outside_the_loop_is_given_up_after_a_while():
    program = Program("""
        import src.signals
        src.signals.PATIENCE = 0.5
        def main():
            ready()
            for _ in range(9):
                ctypes.CDLL(None).sleep(20)
    """)
    program.send(signal.SIGINT)
    code, _, seconds = program.end()
    assert code == 130
    assert seconds < 5


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_at_the_very_end_of_a_block_is_neither_lost_nor_told_twice(signum):
    program = Program(
        """
        def main():
            ready()
            with signals.deferred("the loop ends soon"):
                end = time.monotonic() + 1.0
                while time.monotonic() < end:
                    pass
                os.kill(os.getpid(), SIGNUM); time.sleep(0.001)
            time.sleep(0.5)
            print("seen", signals.signum, flush=True)
            time.sleep(5.5)
            print("went on", flush=True)
    """.replace("SIGNUM", str(signum.value))
    )
    code, output, _ = program.end()
    assert (code, output.splitlines()[-2:]) == (0, [f"seen {signum.value}", "went on"])


def test_what_is_worth_waiting_for_is_not_ended():
    program = Program("""
        import src.signals
        src.signals.PATIENCE = 0.3
        def main():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            ready(); time.sleep(2)
            print("copied", flush=True)
    """)
    program.send(signal.SIGINT, signal.SIGTERM)
    assert program.end()[:2] == (0, "copied\n")


def test_a_block_that_is_held_finishes_first():
    program = Program("""
        def main():
            with signals.held():
                ready(); time.sleep(1)
                print("imported", flush=True)
            print("not reached", flush=True)
    """)
    program.send(signal.SIGINT)
    assert program.end()[:2] == (130, "imported\ninterrupted\n")


def test_children_die_of_the_signals():
    program = Program("""
        def main():
            forked = os.fork()
            if not forked:
                time.sleep(30); os._exit(7)
            another = os.fork()
            if not another:
                signal.signal(15, lambda *_: os._exit(9)); time.sleep(30)
            import subprocess
            other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
            time.sleep(1)
            os.kill(forked, 15); os.kill(another, 15); other.terminate()
            found = [os.waitpid(child, 0)[1] for child in (forked, another)]
            time.sleep(0.5); found += [other.wait(), signals.signum]
            ready(); print(found)
    """)
    assert program.end()[:2] == (0, "[15, 2304, -15, 0]\n")


def test_the_block_leaves_everything_as_it_was():
    program = Program("""
        def main():
            ready()
        import atexit
        before = signal.getsignal(2)  # a job in the background begins with SIGINT ignored
        def after():
            print(signal.getsignal(2) == before, signal.getsignal(15) == signal.SIG_DFL,
                  signal.pthread_sigmask(signal.SIG_BLOCK, []), threading.active_count(), flush=True)
        atexit.register(after)
    """)
    assert program.end()[:2] == (0, "True True set() 1\n")


def test_a_program_that_is_stopped_and_continued_goes_on():
    """Waiting for a signal is interrupted then; Ctrl-Z and fg must not end a run."""
    program = Program("""
        def main():
            ready()
            end = time.monotonic() + 4
            while time.monotonic() < end:
                time.sleep(0.05)
            print("went on", signals.signum, flush=True)
    """)
    for _ in range(4):
        program.send(signal.SIGSTOP, signal.SIGCONT)
    assert program.end()[:2] == (0, "went on 0\n")
