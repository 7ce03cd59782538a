import numpy as np
import pytest
from numbered_images import Numbered, noise_images, shown, stream

from src.transforms import BitTrain


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


def test_the_number_of_threads_changes_nothing():
    data = noise_images(13)
    options = {"transform": BitTrain(resize=(8, 10), crop=(5, 6)), "mixup": 0.5, "seed": 3}
    runs = [list(stream(data, num_workers=workers, **options).iterate(0, 6)) for workers in (1, 2, 7)]
    for run in runs[1:]:
        for (images, labels), (first_images, first_labels) in zip(run, runs[0]):
            assert np.array_equal(images, first_images)
            assert np.array_equal(labels, first_labels)


def test_any_step_can_be_made_again_alone():
    options = {"transform": BitTrain(resize=(8, 10), crop=(5, 6)), "mixup": 0.5}
    straight = list(stream(noise_images(13), **options).iterate(0, 8))
    resumed = list(stream(noise_images(13), **options).iterate(5, 8))
    for (images, labels), (first_images, first_labels) in zip(resumed, straight[5:]):
        assert np.array_equal(images, first_images)
        assert np.array_equal(labels, first_labels)
    assert np.array_equal(stream(noise_images(13), **options).batch(6)[0], straight[6][0])


def test_an_image_is_augmented_anew_in_each_pass():
    train = stream(noise_images(1), batch_size=8, transform=BitTrain(resize=(90, 90), crop=(5, 6)))
    images, _ = train.batch(0)
    assert len({image.tobytes() for image in images}) == 8


def test_another_seed_augments_differently():
    transform = BitTrain(resize=(90, 90), crop=(5, 6))
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


def test_all_ranks_share_one_weight_in_a_step_and_pair_differently():
    data = Numbered(32, classes=32)
    partners = []
    weights = []
    for rank in range(2):
        train = stream(data, batch_size=16, mixup=1.0, class_num=32, rank=rank, device_num=2)
        chosen = train.indices(0).tolist()
        own = train.batch(0)[1][np.arange(16), chosen]
        weights.append(own.min())  # rows that are their own partner have 1
        rest = train.batch(0)[1]
        rest[np.arange(16), chosen] -= own.min()
        partners.append([chosen.index(label) for label in rest.argmax(1)])
        assert sorted(partners[rank]) == list(range(16))
    assert weights[0] == weights[1]
    assert partners[0] != partners[1]


def test_the_weight_changes_with_the_step():
    train = stream(Numbered(8, classes=8), batch_size=8, mixup=1.0, class_num=8)
    weights = {round(float(train.batch(step)[1].max(1).min()), 5) for step in range(5)}
    assert len(weights) == 5


@pytest.mark.parametrize("batch_size", [1, 5])
def test_mixup_takes_one_image_and_odd_batches(batch_size):
    _, labels = stream(Numbered(9), batch_size=batch_size, mixup=0.01).batch(0)
    assert np.allclose(labels.sum(1), 1)
