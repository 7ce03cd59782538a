import numpy as np
import pytest

from src.errors import ArgumentParser, UserError, run_main


def test_a_fault_of_the_user_is_one_line_and_code_1(capsys):
    def main():
        raise UserError("wanted a folder\nand got a file")

    assert run_main(main) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: wanted a folder and got a file\n"
    assert not captured.out


def test_names_cannot_paint_the_terminal_or_break_the_line(capsys):
    def main():
        raise UserError("no image: \x1b[2J\udcff\u202e\x85猫.png")

    assert run_main(main) == 1
    assert capsys.readouterr().err == "error: no image: \\x1b[2J\\udcff\\u202e 猫.png\n"


def test_an_endless_name_leaves_beginning_and_end_of_the_line(capsys):
    def main():
        raise UserError(f"{'x' * 10**6} is damaged; copy it again")

    assert run_main(main) == 1
    line = capsys.readouterr().err
    assert line.startswith("error: xxx")
    assert line.endswith("x is damaged; copy it again\n")
    assert len(line) < 2100


def test_missing_memory_is_one_line_and_code_1(capsys):
    assert run_main(lambda: np.empty(2**60, np.uint8)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is not enough memory (Unable to allocate")


def test_success_is_code_0():
    assert run_main(lambda: None) == 0


def test_a_fault_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


def test_bad_arguments_are_a_fault_of_the_user():
    with pytest.raises(UserError, match="unrecognized arguments: --nonsense; see 'tool --help'"):
        ArgumentParser(prog="tool").parse_args(["--nonsense"])
