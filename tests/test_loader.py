import numpy as np
import pytest
from numbered_images import Numbered, noise_images, shown, stream

from src.autoaugment import RandAugment
from src.errors import UserError
from src.transforms import RandomCrop, RandomErasing, TrainTransform


@pytest.mark.parametrize("device_num", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 8, 37, 64])
def test_every_image_comes_once_in_each_pass(batch_size, device_num):
    ranks = [
        stream(Numbered(37), batch_size=batch_size, rank=rank, device_num=device_num)
        for rank in range(device_num)
    ]
    steps = -(-3 * 37 // (batch_size * device_num))
    seen = np.concatenate([np.stack([rank.indices(s) for rank in ranks], 1).ravel() for s in range(steps)])
    for start in (0, 37, 74):
        assert sorted(seen[start : start + 37]) == list(range(37))


def test_each_pass_has_another_order_and_so_has_each_seed():
    orders = [
        stream(Numbered(37), batch_size=37, seed=seed).indices(step) for seed in (0, 1) for step in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4


def test_the_ranks_together_see_what_one_device_sees():
    whole = stream(Numbered(37), batch_size=12).indices(2)
    for rank in range(3):
        assert np.array_equal(stream(Numbered(37), rank=rank, device_num=3).indices(2), whole[rank::3])


def test_a_small_data_set_fills_a_large_batch_evenly():
    data = Numbered(100, classes=10)
    chosen = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38]
    found = stream(data, batch_size=512, indices=chosen, class_num=10).indices(0)
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == sorted(chosen)
    assert set(counts) == {51, 52}


def test_a_batch_holds_the_images_and_labels_of_its_indices():
    train = stream(Numbered(37), batch_size=5)
    images, labels = train.batch(3)
    assert images.shape == (5, 3, 2, 3)
    assert images.dtype == np.float32
    assert labels.dtype == np.int32
    assert shown(images) == train.indices(3).tolist()
    assert labels.tolist() == (train.indices(3) % 5).tolist()


def test_mean_and_std_reach_the_batch():
    images, _ = stream(Numbered(1), batch_size=1, mean=(127.5,) * 3, std=(127.5,) * 3).batch(0)
    assert (images == -1).all()


TRAIN = TrainTransform(
    RandomCrop(resize=(8, 10), crop=(5, 6)),
    augment=RandAugment(),
    erasing=RandomErasing(0.5, (127.5,) * 3, (60,) * 3),
)
MIXES = [{"mixup": 0.5}, {"cutmix": 1.0}, {"mixup": 0.5, "cutmix": 1.0}]


@pytest.mark.parametrize("mixes", MIXES)
def test_the_number_of_threads_changes_nothing(mixes):
    data = noise_images(13)
    options = {"transform": TRAIN, "seed": 3, **mixes}
    runs = [list(stream(data, num_workers=workers, **options).iterate(0, 6)) for workers in (1, 2, 7)]
    for run in runs[1:]:
        for (images, labels), (first_images, first_labels) in zip(run, runs[0]):
            assert np.array_equal(images, first_images)
            assert np.array_equal(labels, first_labels)


@pytest.mark.parametrize("mixes", MIXES)
def test_any_step_can_be_made_again_alone(mixes):
    options = {"transform": TRAIN, **mixes}
    straight = list(stream(noise_images(13), **options).iterate(0, 8))
    resumed = list(stream(noise_images(13), **options).iterate(5, 8))
    for (images, labels), (first_images, first_labels) in zip(resumed, straight[5:]):
        assert np.array_equal(images, first_images)
        assert np.array_equal(labels, first_labels)
    assert np.array_equal(stream(noise_images(13), **options).batch(6)[0], straight[6][0])


def test_an_image_is_augmented_anew_in_each_pass():
    train = stream(
        noise_images(1), batch_size=8, transform=TrainTransform(RandomCrop(resize=(90, 90), crop=(5, 6)))
    )
    images, _ = train.batch(0)
    assert len({image.tobytes() for image in images}) == 8


def test_another_seed_augments_differently():
    transform = TrainTransform(RandomCrop(resize=(90, 90), crop=(5, 6)))
    first, second = (stream(noise_images(1), seed=seed, transform=transform).batch(0)[0] for seed in (0, 1))
    assert not np.array_equal(first, second)


def test_mixup_gives_soft_labels_of_the_weights_of_the_images():
    data = Numbered(2, classes=2)
    images, labels = stream(data, batch_size=6, mixup=1.0, class_num=7).batch(1)
    assert labels.shape == (6, 7)
    assert labels.dtype == np.float32
    assert np.allclose(labels.sum(1), 1, atol=1e-6)
    assert (labels >= 0).all()
    assert np.allclose(images[:, 0, 0, 0], labels[:, 1], atol=1e-6)  # image 0 is black, image 1 has value 1


@pytest.mark.parametrize("mixes", [{"mixup": 1.0}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1.0}])
def test_ranks_together_mix_what_one_device_mixes(mixes):
    data = Numbered(40, classes=40)
    whole = stream(data, batch_size=16, class_num=40, **mixes)
    parts = [stream(data, batch_size=8, class_num=40, rank=r, device_num=2, **mixes) for r in range(2)]
    for step in range(6):
        for column in range(2):
            rows = np.stack([part.batch(step)[column] for part in parts], 1)  # row 0 of each rank, row 1, ...
            np.testing.assert_array_equal(
                rows.reshape(whole.batch(step)[column].shape), whole.batch(step)[column]
            )


def test_the_weight_changes_with_the_step():
    train = stream(Numbered(8, classes=8), batch_size=8, mixup=1.0, class_num=8)
    weights = {round(float(train.batch(step)[1].max(1).min()), 5) for step in range(5)}
    assert len(weights) == 5


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("mixes", [{"mixup": 0.01}, {"cutmix": 0.01}, {"mixup": 0.01, "cutmix": 0.01}])
def test_mixing_takes_one_image_and_odd_batches(batch_size, mixes):
    for _, labels in stream(Numbered(9), batch_size=batch_size, **mixes).iterate(0, 20):
        assert np.allclose(labels.sum(1), 1)
        assert (labels >= 0).all()


def test_each_row_is_mixed_with_the_one_half_a_batch_on():
    train = stream(Numbered(20, classes=20), batch_size=6, class_num=20, mixup=0.4, seed=5)
    for step in range(3):
        lam = np.random.default_rng((5, 2, step)).beta(0.4, 0.4)
        one_hot = np.eye(20)[train.indices(step)]
        expected = lam * one_hot + (1 - lam) * one_hot[[3, 4, 5, 0, 1, 2]]
        np.testing.assert_allclose(train.batch(step)[1], expected, atol=1e-6)


def is_blend(images):
    """Whether pixels of Numbered images were added up, as mixup does and CutMix does not."""
    return bool((images % 1).any())


def test_cutmix_gives_soft_labels_of_the_pixels_of_the_images():
    train = stream(Numbered(8, classes=8), batch_size=8, cutmix=1e6, class_num=8)  # weights near 0.5
    for images, labels in train.iterate(0, 30):
        assert labels.dtype == np.float32
        assert labels.max(1).min() < 1
        shares = (images[:, 0, :, :, None] == np.arange(8)).mean((1, 2))
        np.testing.assert_allclose(labels, shares, atol=1e-6)


def test_mixup_and_cutmix_together_have_half_of_the_batches_each():
    steps = stream(Numbered(8, classes=8), batch_size=8, mixup=1.0, cutmix=1.0, class_num=8).iterate(0, 600)
    blends = [is_blend(images) for images, _ in steps]
    assert abs(np.mean(blends) - 0.5) < 0.06  # three deviations
    assert abs(np.mean(np.array(blends[1:]) == blends[:-1]) - 0.5) < 0.06  # whatever the batch before had


def test_each_of_the_two_has_its_own_alpha():
    """Beta(1e6, 1e6) is 0.5, and Beta(0.01, 0.01) is 0 or 1: half of CutMix's batches stay as they are."""
    steps = stream(Numbered(8, classes=8), batch_size=8, mixup=1e6, cutmix=0.01, class_num=8).iterate(0, 60)
    kept = {True: [], False: []}
    for images, labels in steps:
        kept[is_blend(images)].append(labels.max(1).min())
    np.testing.assert_allclose(kept[True], 0.5, atol=0.01)
    assert 0.25 < np.mean(np.array(kept[False]) == 1) < 0.75


def test_all_ranks_share_the_method_and_the_box_of_a_step():
    data = Numbered(32, classes=32)
    options = {"batch_size": 16, "mixup": 1.0, "cutmix": 1.0, "class_num": 32, "device_num": 2}
    ranks = [stream(data, rank=rank, **options) for rank in range(2)]
    for step in range(12):
        batches = [rank.batch(step) for rank in ranks]
        assert len({is_blend(images) for images, _ in batches}) == 1
        if not is_blend(batches[0][0]):
            own = [rank.indices(step)[:, None, None] for rank in ranks]
            first, second = ((images[:, 0] != index).any(0) for (images, _), index in zip(batches, own))
            assert np.array_equal(first, second)


def test_a_negative_alpha_of_cutmix_is_refused():
    with pytest.raises(UserError, match="cutmix must not be negative"):
        stream(Numbered(9), cutmix=-0.1)
