import numpy as np
import pytest

from src.cifar import CIFAR10_NAMES, Cifar, detect_format
from src.errors import UserError


def record(*labels, image=None):
    image = np.zeros((32, 32, 3), np.uint8) if image is None else image
    return bytes(labels) + image.transpose(2, 0, 1).tobytes()


def write(path, *records):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(records))
    return path.parent


def pictures(count):
    return np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)


def test_records_of_several_files_come_in_order(tmp_path):
    images = pictures(3)
    write(tmp_path / "data_batch_1.bin", record(3, image=images[0]), record(9, image=images[1]))
    write(tmp_path / "data_batch_2.bin", record(0, image=images[2]))
    data = Cifar(tmp_path, name="cifar10", train=True)
    assert data.labels.tolist() == [3, 9, 0]
    assert data.labels.dtype == np.int32
    assert data.names == ["data_batch_1.bin#0", "data_batch_1.bin#1", "data_batch_2.bin#0"]
    assert len(data) == 3
    for index, image in enumerate(images):
        assert data.image(index).mode == "RGB"
        assert np.array_equal(data.image(index), image)


def test_the_size_is_32_by_32(tmp_path):
    assert Cifar(write(tmp_path / "test.bin", record(0, 0)), name="cifar100", train=False).typical_size() == (
        32,
        32,
    )


def test_training_and_test_files_are_not_mixed_up(tmp_path):
    write(tmp_path / "data_batch_1.bin", record(1), record(2))
    write(tmp_path / "test_batch.bin", record(7))
    assert Cifar(tmp_path, name="cifar10", train=False).labels.tolist() == [7]
    assert Cifar(tmp_path, name="cifar10", train=True).labels.tolist() == [1, 2]


def test_the_batches_that_exist_are_taken_with_a_warning(tmp_path, caplog):
    write(tmp_path / "data_batch_2.bin", record(1))
    write(tmp_path / "data_batch_5.bin", record(4))
    assert Cifar(tmp_path, name="cifar10", train=True).labels.tolist() == [1, 4]
    assert "missing data_batch_1.bin, data_batch_3.bin, data_batch_4.bin" in caplog.text


def test_cifar100_gives_fine_labels_unless_asked_for_coarse_ones(tmp_path):
    write(tmp_path / "train.bin", record(4, 17), record(19, 99))
    fine = Cifar(tmp_path, name="cifar100", train=True)
    coarse = Cifar(tmp_path, name="cifar100", train=True, label="coarse")
    assert (fine.labels.tolist(), len(fine.class_names)) == ([17, 99], 100)
    assert (coarse.labels.tolist(), len(coarse.class_names)) == ([4, 19], 20)


def test_cifar100_pictures_start_after_both_labels(tmp_path):
    image = pictures(1)[0]
    write(tmp_path / "test.bin", record(4, 17, image=image))
    assert np.array_equal(Cifar(tmp_path, name="cifar100", train=False).image(0), image)


@pytest.mark.parametrize(
    ("name", "folder", "file", "labels"),
    [
        ("cifar10", "cifar-10-batches-bin", "test_batch.bin", [1]),
        ("cifar100", "cifar-100-binary", "test.bin", [0, 1]),
    ],
)
def test_the_unpacked_folder_may_lie_in_the_root(tmp_path, name, folder, file, labels):
    write(tmp_path / folder / file, record(*labels))
    assert Cifar(tmp_path, name=name, train=False).labels.tolist() == [1]
    assert detect_format(tmp_path) == name
    assert detect_format(tmp_path / folder) == name


def test_names_come_from_the_file_of_names(tmp_path):
    names = [f"thing {i}" for i in range(10)]
    write(tmp_path / "test_batch.bin", record(0))
    (tmp_path / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    assert Cifar(tmp_path, name="cifar10", train=False).class_names == tuple(names)


def test_a_file_of_the_wrong_number_of_names_is_not_used(tmp_path, caplog):
    write(tmp_path / "test_batch.bin", record(0))
    (tmp_path / "batches.meta.txt").write_text("a\nb\n")
    assert Cifar(tmp_path, name="cifar10", train=False).class_names == CIFAR10_NAMES
    assert "2 names, expected 10" in caplog.text


def test_cifar100_without_names_has_numbered_classes(tmp_path):
    data = Cifar(write(tmp_path / "test.bin", record(0, 0)), name="cifar100", train=False)
    assert data.class_names[:2] == ("class_00", "class_01")
    assert data.class_names[99] == "class_99"


@pytest.mark.parametrize("size", [0, 3072, 3074 + 3073])
def test_a_file_of_the_wrong_size_is_refused_with_both_sizes(tmp_path, size):
    (tmp_path / "test_batch.bin").write_bytes(bytes(size))
    with pytest.raises(UserError, match=rf"test_batch\.bin has {size} bytes.*3073"):
        Cifar(tmp_path, name="cifar10", train=False)


def test_a_label_out_of_range_is_refused_with_file_and_record(tmp_path):
    write(tmp_path / "data_batch_1.bin", record(0))
    write(tmp_path / "data_batch_2.bin", record(9), record(10))
    with pytest.raises(UserError, match=r"data_batch_2\.bin: record 1 has label 10"):
        Cifar(tmp_path, name="cifar10", train=True)


@pytest.mark.parametrize("folder", [".", "cifar-10-batches-py"])
def test_the_pickled_version_is_refused_with_what_to_download(tmp_path, folder):
    write(tmp_path / folder / "data_batch_1", b"pickle")
    write(tmp_path / folder / "meta", b"pickle")
    assert detect_format(tmp_path) == "cifar10"
    with pytest.raises(UserError, match=r"pickled version .*binary version .*cifar-10-binary\.tar\.gz"):
        Cifar(tmp_path, name="cifar10", train=True)


def test_the_pickled_version_of_cifar100_is_recognised(tmp_path):
    write(tmp_path / "cifar-100-python" / "train", b"pickle")
    assert detect_format(tmp_path) == "cifar100"
    with pytest.raises(UserError, match=r"cifar-100-binary\.tar\.gz"):
        Cifar(tmp_path, name="cifar100", train=True)


def test_an_empty_folder_says_what_to_download(tmp_path):
    with pytest.raises(UserError, match=r"no test_batch\.bin in .*cifar-10-binary\.tar\.gz"):
        Cifar(tmp_path, name="cifar10", train=False)


def test_wrong_names_are_refused(tmp_path):
    write(tmp_path / "test_batch.bin", record(0))
    with pytest.raises(UserError, match="cifar10 or cifar100, not 'cifar'"):
        Cifar(tmp_path, name="cifar", train=False)
    with pytest.raises(UserError, match="must be fine, not 'coarse'"):
        Cifar(tmp_path, name="cifar10", train=False, label="coarse")


def test_folders_called_train_and_test_are_an_image_folder(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "test" / "a").mkdir(parents=True)
    assert detect_format(tmp_path) == "imagefolder"


def test_a_missing_root_and_a_file_have_no_format(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        detect_format(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not a folder"):
        detect_format(tmp_path / "file")
