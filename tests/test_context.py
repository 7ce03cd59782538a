import mindspore as ms
import numpy as np
import pytest
from mindspore import communication, ops

from src.context import (
    Runtime,
    check_agreement,
    choose_amp_level,
    init_context,
    raise_if_out_of_memory,
)
from src.errors import UserError


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(UserError, match="device_target Ascend with device_id 3 cannot be used here"):
        init_context(device_target="Ascend", device_id=3, seed=1)


def test_the_device_of_the_environment_is_taken(monkeypatch):
    monkeypatch.setenv("DEVICE_ID", "0")
    runtime = init_context(device_target=None, device_id=None, seed=1)
    assert (runtime.device_target, runtime.device_id, runtime.rank, runtime.device_num) == ("CPU", 0, 0, 1)


def test_memory_that_runs_out_is_told_from_other_errors():
    with pytest.raises(UserError, match="raise batch_split"):
        raise_if_out_of_memory(RuntimeError("#umsg#Memory not enough:#umsg#Device(id:0) memory isn't enough"))
    with pytest.raises(UserError, match="raise batch_split"):
        raise_if_out_of_memory(RuntimeError("Allocate host memory failed, size: 1024"))
    for text in (
        "For 'MatMul', the shapes do not fit",
        "Launch kernel failed, name:AllReduce\n---\n- C++ Call Stack: (For framework developers)\n---\n"
        "mindspore/ccsrc/runtime/kernel_actor.cc:993 OnMemoryAllocFinish failed",
    ):
        raise_if_out_of_memory(RuntimeError(text))


def test_a_process_that_has_computed_keeps_its_device():
    ms.ops.add(ms.Tensor([1.0]), ms.Tensor([2.0])).asnumpy()
    assert init_context(device_target="CPU", device_id=0, seed=1).device_target == "CPU"


def test_a_device_of_the_environment_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("DEVICE_ID", "one")
    with pytest.raises(UserError, match="DEVICE_ID wants a whole number and holds 'one'"):
        init_context(device_target="CPU", device_id=None, seed=1)


def test_bfloat16_is_for_mixed_precision_on_devices_that_have_it():
    cpu = Runtime("CPU", 0, 0, 1)
    with pytest.raises(UserError, match="not a CPU; use float16"):
        choose_amp_level("O2", "bfloat16", cpu)
    assert choose_amp_level(None, "float16", cpu) == "O0"


@pytest.mark.parametrize(
    ("capability", "fits"), [((7, 5), False), ((8, 0), True), ((9, 0), True), ((7, 0), False)]
)
def test_a_gpu_has_bfloat16_from_capability_8(monkeypatch, capability, fits):
    monkeypatch.setattr(ms.hal, "get_device_capability", lambda _: capability)
    gpu = Runtime("GPU", 0, 0, 1)
    if fits:
        assert choose_amp_level("O2", "bfloat16", gpu) == "O2"
        with pytest.raises(UserError, match="amp_level is O0"):
            choose_amp_level(None, "bfloat16", gpu)
    else:
        with pytest.raises(UserError, match="a GPU of compute capability 7"):
            choose_amp_level("O2", "bfloat16", gpu)


@pytest.mark.parametrize(
    ("name", "fits"),
    [("Ascend910B2", True), ("Ascend910_9391", True), ("Ascend910A", False), ("Ascend910PremiumA", False),
     ("Ascend310P3", False), ("Ascend910ProB", False)],
)  # fmt: skip
def test_an_ascend_has_bfloat16_from_the_second_910_on(monkeypatch, name, fits):
    monkeypatch.setattr(ms.hal, "get_device_name", lambda _: name)
    ascend = Runtime("Ascend", 0, 0, 1)
    assert choose_amp_level(None, "float16", ascend) == "O3"
    if fits:
        assert choose_amp_level(None, "bfloat16", ascend) == "O3"
    else:
        with pytest.raises(UserError, match=f"not an {name}"):
            choose_amp_level(None, "bfloat16", ascend)


@pytest.fixture
def joined(monkeypatch):
    """Two ranks, of which MindSpore says what the test sets."""
    options = {"place": (0, 2)}
    monkeypatch.setattr(communication, "init", lambda: None)
    monkeypatch.setattr(communication, "get_rank", lambda: options["place"][0])
    monkeypatch.setattr(communication, "get_group_size", lambda: options["place"][1])
    monkeypatch.setattr(ms, "set_auto_parallel_context", lambda **keys: options.update(keys))
    for key, value in {"RANK_ID": "0", "RANK_SIZE": "2", "MS_SCHED_HOST": "127.0.0.1"}.items():
        monkeypatch.setenv(key, value)
    return options


def test_ranks_average_their_gradients_with_the_fusion_that_is_asked_for(joined):
    runtime = init_context(device_target="CPU", device_id=0, seed=1, all_reduce_fusion=(3, 7))
    assert (runtime.rank, runtime.device_num) == (0, 2)
    assert joined["all_reduce_fusion_config"] == [3, 7]
    assert joined["gradients_mean"] is True


def test_a_rank_that_mindspore_counts_otherwise_is_refused(joined):
    joined["place"] = (1, 2)
    with pytest.raises(UserError, match="the environment says rank 0 of 2"):
        init_context(device_target="CPU", device_id=0, seed=1)


def test_ranks_that_differ_are_told_in_what(monkeypatch):
    mine = {}

    class Gather:
        def __call__(self, tensor):
            mine["row"] = tensor.asnumpy()
            other = mine["row"].copy()
            other[1] += 1
            return ms.Tensor(np.concatenate([mine["row"], other]))

    monkeypatch.setattr(ops, "AllGather", Gather)
    check_agreement({"a": 1, "b": 2}, 1)
    assert not mine  # one device has nobody to ask
    with pytest.raises(UserError, match="the ranks differ in the steps; let all"):
        check_agreement({"the images": ("x", 3), "the steps": b"abc"}, 2)
