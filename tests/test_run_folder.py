import pytest

from src.errors import UserError
from src.run_folder import start_run


def start(root, name):
    return start_run(str(root), name, config="seed: 1\n", class_names=["a", "b"])


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path):
    folders = {start(tmp_path / "new", "") for _ in range(5)}
    assert len(folders) == 5
    for folder in folders:
        assert {path.name for path in folder.iterdir()} == {"config.yml", "class_map.json"}


def test_a_named_folder_is_used_once(tmp_path):
    folder = start(tmp_path, "mine")
    (folder / "config.yml").write_text("precious")
    with pytest.raises(UserError, match="mine exists; choose another run_name"):
        start(tmp_path, "mine")
    assert (folder / "config.yml").read_text() == "precious"


def test_a_place_that_cannot_hold_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write the folder .*file/mine: .*; choose another"):
        start(tmp_path / "file", "mine")
