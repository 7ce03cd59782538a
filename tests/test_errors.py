import pytest

from src.errors import ArgumentParser, UserError, run_main


def test_a_fault_of_the_user_is_one_line_and_code_1(capsys):
    def main():
        raise UserError("wanted a folder\nand got a file")

    assert run_main(main) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: wanted a folder and got a file\n"
    assert not captured.out


def test_success_is_code_0():
    assert run_main(lambda: None) == 0


def test_a_fault_of_ours_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_main(lambda: 1 // 0)


def test_bad_arguments_are_a_fault_of_the_user():
    with pytest.raises(UserError, match="unrecognized arguments: --nonsense; see 'tool --help'"):
        ArgumentParser(prog="tool").parse_args(["--nonsense"])
