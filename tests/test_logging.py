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


def test_names_in_a_message_stay_on_their_line_and_cannot_fail_to_be_written(tmp_path):
    terminal = io.TextIOWrapper(io.BytesIO(), "utf-8")
    get_logger(tmp_path, stream=terminal).warning("skipped: %s", "a\n\x1b[31m\udcff猫.png")
    terminal.seek(0)
    for text in (terminal.read(), (tmp_path / "train.log").read_text(encoding="utf-8")):
        assert text.endswith(":WARNING:skipped: a\\n\\x1b[31m\\udcff猫.png\n")


def test_a_terminal_that_is_gone_is_told_once_in_the_file(tmp_path, capsys):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

    logger = get_logger(tmp_path, stream=Gone())
    for _ in range(3):
        logger.info("a line")
    text = (tmp_path / "train.log").read_text()
    assert text.count("INFO:a line") == 3
    assert text.count("the terminal cannot be written") == 1
    assert "Traceback" not in capsys.readouterr().err
