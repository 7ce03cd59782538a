import io

from src.logging import get_logger


def test_lines_before_the_run_folder_exists_are_in_its_log(tmp_path):
    terminal = io.StringIO()
    get_logger(stream=terminal).info("early %d", 1)
    get_logger(tmp_path, stream=terminal).info("late")
    text = (tmp_path / "train.log").read_text()
    assert [line.split(":INFO:")[1] for line in text.splitlines()] == ["early 1", "late"]
    assert terminal.getvalue() == text


def test_other_ranks_show_warnings_and_write_no_file(tmp_path, capsys):
    logger = get_logger(tmp_path, rank=3)
    logger.info("hidden")
    logger.warning("here")
    assert not list(tmp_path.iterdir())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(":WARNING:here")
