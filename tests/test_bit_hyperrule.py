import pytest

from src import bit_hyperrule


@pytest.mark.parametrize(
    ("size", "expected"),
    [((32, 32), (160, 128)), ((95, 97), (160, 128)), ((96, 96), (512, 480)), ((224, 224), (512, 480))],
)
def test_the_image_area_decides_the_resolution(size, expected):
    assert bit_hyperrule.resolution(*size) == expected


@pytest.mark.parametrize(
    ("images", "end", "mixup"),
    [
        (10, 500, 0.0),
        (19_999, 500, 0.0),
        (20_000, 10_000, 0.1),
        (499_999, 10_000, 0.1),
        (500_000, 20_000, 0.1),
    ],
)
def test_the_number_of_images_decides_schedule_and_mixup(images, end, mixup):
    assert bit_hyperrule.schedule_steps(images)[-1] == end
    assert bit_hyperrule.mixup_alpha(images) == mixup
