import json

import pytest

from src.class_map import check_class_order, read_class_map, write_class_map
from src.errors import UserError


def test_a_class_map_comes_back_in_order(tmp_path):
    names = ("zebra", "Affe", "größer als", "0")
    write_class_map(tmp_path / "map.json", names)
    assert json.loads((tmp_path / "map.json").read_text()) == {name: i for i, name in enumerate(names)}
    assert read_class_map(tmp_path / "map.json") == names


def test_writing_leaves_no_partial_file_and_replaces_the_old_one(tmp_path):
    for names in (("a", "b"), ("c",)):
        write_class_map(tmp_path / "map.json", names)
    assert [path.name for path in tmp_path.iterdir()] == ["map.json"]
    assert read_class_map(tmp_path / "map.json") == ("c",)


@pytest.mark.parametrize(
    "text", ["", "[1]", "{}", '{"a": 0, "b": 2}', '{"a": 1}', '{"a": 0, "b": 0}', '{"a": "0"}', '{"a": true}']
)
def test_a_wrong_class_map_is_refused_by_name(tmp_path, text):
    path = tmp_path / "map.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"map\.json"):
        read_class_map(path)


def test_a_missing_class_map_is_named(tmp_path):
    with pytest.raises(UserError, match=r"gone\.json: No such file"):
        read_class_map(tmp_path / "gone.json")


def test_equal_classes_pass():
    check_class_order(("a", "b"), ["a", "b"])


def test_other_names_are_listed():
    with pytest.raises(UserError, match="expected 3 classes, found 2; missing: b, c; unknown: d"):
        check_class_order(("a", "b", "c"), ("a", "d"))


def test_another_order_is_shown_with_its_indices():
    with pytest.raises(UserError, match=r"another order.*1: 'b' / 'c', 2: 'c' / 'b'"):
        check_class_order(("a", "b", "c"), ("a", "c", "b"))
