import logging

import pytest
from PIL import Image

from src.errors import UserError
from src.image_folder import ImageFolder, eval_folder, train_folder
from src.image_io import BadImageError


def add_images(root, *names, size=(6, 4), color=(1, 2, 3)):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, color).save(path, "PNG")
    return root


def add_files(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("no image")
    return root


def test_classes_and_images_come_in_plain_string_order(tmp_path):
    add_images(tmp_path, "b/2.png", "b/10.png", "a/z.png", "Z/y.png", "ä ö/x 1.png")
    data = ImageFolder(tmp_path)
    assert data.class_names == ("Z", "a", "b", "ä ö")
    assert data.names == ["Z/y.png", "a/z.png", "b/10.png", "b/2.png", "ä ö/x 1.png"]
    assert data.labels.tolist() == [0, 1, 2, 2, 3]
    assert data.labels.dtype == "int32"
    assert len(data) == 5


def test_an_image_is_decoded_by_its_index(tmp_path):
    add_images(tmp_path, "a/x.png", color=(9, 8, 7))
    add_images(tmp_path, "b/x.png", color=(5, 5, 5), size=(2, 3))
    image = ImageFolder(tmp_path).image(1)
    assert image.size == (2, 3)
    assert image.getpixel((0, 0)) == (5, 5, 5)


def test_a_broken_image_is_named_with_its_path(tmp_path):
    add_files(tmp_path, "a/x.png")
    with pytest.raises(BadImageError, match=str(tmp_path / "a" / "x.png")):
        ImageFolder(tmp_path).image(0)


def test_hidden_and_system_folders_and_files_change_nothing(tmp_path):
    add_images(tmp_path, "a/1.png", "b/2.png")
    clean = ImageFolder(tmp_path)
    add_images(tmp_path, ".ipynb_checkpoints/1.png", "__MACOSX/1.png", "@eaDir/1.png", "a/.hidden.png")
    add_images(tmp_path, "$RECYCLE.BIN/1.png", "lost+found/1.png", "a/.cache/1.png", "a/@eaDir/1.png")
    add_files(tmp_path, ".DS_Store", "Thumbs.db", "readme.txt", "a/.DS_Store", "a/Thumbs.db", "b/._2.png")
    found = ImageFolder(tmp_path)
    assert found.class_names == clean.class_names
    assert found.names == clean.names


def test_extensions_count_in_any_case(tmp_path):
    add_images(tmp_path, "k/a.JPG", "k/b.jpeg", "k/c.PNG", "k/d.JPEG", "k/e.bmp", "k/g.WebP")
    add_files(tmp_path, "k/f.txt", "k/jpg")
    assert len(ImageFolder(tmp_path)) == 6


def test_ignored_files_are_counted_in_one_line(tmp_path, caplog):
    add_images(tmp_path, "a/1.png", "b/1.png")
    add_files(tmp_path, "a/list.csv", "a/n.txt", "b/n.txt")
    with caplog.at_level(logging.INFO):
        ImageFolder(tmp_path)
    assert len(caplog.records) == 1
    assert "ignored 3 files" in caplog.text


def test_nested_folders_belong_to_their_class(tmp_path):
    add_images(tmp_path, "a/deep/er/2.png", "a/1.png", "b/x/1.png")
    data = ImageFolder(tmp_path)
    assert data.names == ["a/1.png", "a/deep/er/2.png", "b/x/1.png"]
    assert data.labels.tolist() == [0, 0, 1]


def test_links_are_followed_without_end_or_repetition(tmp_path):
    root = add_images(tmp_path / "root", "a/1.png", "a/in/2.png")
    other = add_images(tmp_path / "other", "3.png")
    (root / "b").symlink_to(other)
    (root / "a" / "in" / "again").symlink_to(root / "a")
    (root / "a" / "in" / "top").symlink_to(root)
    (root / "a" / "link.png").symlink_to(root / "a" / "1.png")
    assert ImageFolder(root).names == ["a/1.png", "a/in/2.png", "a/link.png", "b/3.png"]


def test_a_dead_link_is_reported_and_not_lost(tmp_path):
    add_images(tmp_path, "a/1.png")
    (tmp_path / "a" / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(BadImageError, match=r"2\.png"):
        ImageFolder(tmp_path).image(1)


def test_a_class_without_images_is_an_error_that_names_it(tmp_path):
    add_images(tmp_path, "a/1.png")
    (tmp_path / "empty one").mkdir()
    with pytest.raises(UserError, match="empty one holds no images"):
        ImageFolder(tmp_path)


def test_labels_follow_given_classes(tmp_path):
    add_images(tmp_path, "a/1.png", "c/1.png")
    data = ImageFolder(tmp_path, class_names=("c", "b", "a"))
    assert data.class_names == ("c", "b", "a")
    assert dict(zip(data.names, data.labels)) == {"a/1.png": 2, "c/1.png": 0}


def test_given_classes_without_images_are_a_warning(tmp_path, caplog):
    add_images(tmp_path, "a/1.png")
    (tmp_path / "b").mkdir()
    ImageFolder(tmp_path, class_names=("a", "b", "c"))
    assert "2 classes have no images, such as b" in caplog.text


def test_a_folder_outside_the_given_classes_is_an_error(tmp_path):
    add_images(tmp_path, "a/1.png", "d/1.png")
    with pytest.raises(UserError, match="missing: b; unknown: d"):
        ImageFolder(tmp_path, class_names=("a", "b"))


def test_images_without_class_folders_are_an_error(tmp_path):
    add_images(tmp_path, "1.png")
    with pytest.raises(UserError, match="one folder for each class"):
        ImageFolder(tmp_path)


def test_a_root_without_class_folders_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no class folders"):
        ImageFolder(tmp_path)


def test_class_folders_without_any_image_are_an_error(tmp_path):
    add_files(tmp_path, "a/1.txt", "b/2.txt")
    with pytest.raises(UserError, match="no images in the class folders"):
        ImageFolder(tmp_path)


def test_a_missing_root_and_a_file_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"gone: No such file"):
        ImageFolder(tmp_path / "gone")
    with pytest.raises(UserError, match=r"file: Not a directory"):
        ImageFolder(add_files(tmp_path, "file") / "file")


def test_the_typical_size_is_the_median_of_height_and_width(tmp_path):
    add_images(tmp_path, "a/1.png", "a/2.png", size=(30, 20))
    add_images(tmp_path, "b/1.png", size=(500, 10))
    add_files(tmp_path, "b/broken.png")
    assert ImageFolder(tmp_path).typical_size() == (20, 30)


def test_the_typical_size_of_many_images_looks_at_all_parts(tmp_path):
    add_images(tmp_path, *(f"a/{i}.png" for i in range(100)), size=(2, 2))
    add_images(tmp_path, *(f"b/{i}.png" for i in range(160)), size=(4, 3))
    assert ImageFolder(tmp_path).typical_size() == (3, 4)


def test_a_folder_of_broken_images_has_no_typical_size(tmp_path):
    with pytest.raises(UserError, match="none of 1 images can be read"):
        ImageFolder(add_files(tmp_path, "a/1.png")).typical_size()


def test_the_training_split_is_found(tmp_path):
    add_images(tmp_path, "train/a/1.png", "val/a/1.png")
    assert train_folder(tmp_path) == tmp_path / "train"
    assert train_folder(tmp_path / "train") == tmp_path / "train"


def test_a_class_called_train_is_no_split(tmp_path):
    add_images(tmp_path, "bus/1.png", "train/1.png")
    assert train_folder(tmp_path) == tmp_path


def test_splits_without_class_folders_are_not_taken_for_classes(tmp_path):
    add_images(tmp_path, "train/1.png", "val/1.png")
    with pytest.raises(UserError, match="one folder for each class"):
        ImageFolder(train_folder(tmp_path))


@pytest.mark.parametrize("name", ["val", "validation", "test"])
def test_the_evaluation_split_is_found_inside_and_beside_train(tmp_path, name, monkeypatch):
    add_images(tmp_path, "train/a/1.png", f"{name}/a/1.png")
    assert eval_folder(tmp_path, None) == tmp_path / name
    assert eval_folder(tmp_path / "train", None) == tmp_path / name
    monkeypatch.chdir(tmp_path / "train")
    assert eval_folder(".", None) == tmp_path / name


def test_val_comes_before_test(tmp_path):
    add_images(tmp_path, "train/a/1.png", "test/a/1.png", "val/a/1.png")
    assert eval_folder(tmp_path, None) == tmp_path / "val"


def test_an_evaluation_path_wins_and_may_hold_splits(tmp_path):
    add_images(tmp_path, "data/train/a/1.png", "data/val/a/1.png", "other/a/1.png", "more/val/a/1.png")
    assert eval_folder(tmp_path / "data", tmp_path / "other") == tmp_path / "other"
    assert eval_folder(tmp_path / "data", tmp_path / "more") == tmp_path / "more" / "val"


def test_without_an_evaluation_split_the_error_says_what_to_set(tmp_path):
    add_images(tmp_path, "train/a/1.png")
    with pytest.raises(UserError, match="set eval_path"):
        eval_folder(tmp_path, None)
