import io

from src.logging import get_logger


def test_lines_before_the_run_folder_exists_are_in_its_log(tmp_path):
    terminal = io.StringIO()
    get_logger(stream=terminal).info("early %d", 1)
    get_logger(tmp_path, stream=terminal).info("late")
    text = (tmp_path / "train.log").read_text()
    assert [line.split(":INFO:")[1] for line in text.splitlines()] == ["early 1", "late"]
    assert terminal.getvalue() == text


def test_other_ranks_write_a_file_of_their_own_and_nothing_else(tmp_path, capsys):
    get_logger(tmp_path, rank=3).warning("here")
    assert (tmp_path / "train_3.log").read_text().endswith(":WARNING:here\n")
    assert not capsys.readouterr().out
