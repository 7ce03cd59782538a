import mindspore as ms
import pytest

from src.context import init_context, raise_if_out_of_memory
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
