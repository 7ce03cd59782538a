import pytest

from src.errors import UserError
from src.model_utils.local_adapter import get_device_id, get_place


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, (0, 1)),
        ({"RANK_ID": "0", "RANK_SIZE": "1"}, (0, 1)),
        ({"RANK_ID": "3", "RANK_SIZE": "8", "DEVICE_ID": "3", "RANK_TABLE_FILE": "t.json"}, (3, 8)),
        ({"RANK_ID": "1", "RANK_SIZE": "2", "MS_SCHED_HOST": "127.0.0.1"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}, (1, 4)),
    ],
)
def test_the_environment_says_which_rank_this_is(environ, place):
    assert get_place(environ) == place


@pytest.mark.parametrize(
    ("environ", "text"),
    [
        ({"RANK_SIZE": "8", "RANK_ID": "3", "DEVICE_ID": "3"}, "neither RANK_TABLE_FILE nor MS_SCHED_HOST"),
        ({"RANK_SIZE": "8"}, "RANK_SIZE without RANK_ID"),
        ({"RANK_ID": "0"}, "RANK_ID without RANK_SIZE"),
        ({"RANK_ID": "8", "RANK_SIZE": "8"}, "RANK_ID 8 of RANK_SIZE 8"),
        ({"RANK_ID": "0", "RANK_SIZE": "0"}, "RANK_ID 0 of RANK_SIZE 0"),
        ({"RANK_ID": "one", "RANK_SIZE": "8"}, "RANK_ID wants a whole number and holds 'one'"),
        ({"RANK_ID": "-1", "RANK_SIZE": "8"}, "RANK_ID wants a whole number"),
    ],
)
def test_half_of_a_distributed_run_is_no_silent_single_one(environ, text):
    with pytest.raises(UserError, match=text):
        get_place(environ)


def test_the_device_is_that_of_the_environment():
    assert get_device_id({}) == 0
    assert get_device_id({"DEVICE_ID": "5"}) == 5
    with pytest.raises(UserError, match="DEVICE_ID wants a whole number and holds ''"):
        get_device_id({"DEVICE_ID": ""})
