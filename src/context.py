"""Device, mode and seed of the process. What one kind of device needs and others do not stands here."""

from __future__ import annotations

import hashlib
import re
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import communication, ops

from src.errors import UserError
from src.model_utils import local_adapter
from src.model_utils.local_adapter import LAUNCH


@dataclass(frozen=True)
class Runtime:
    """Where this process runs: `rank` of `device_num`, on device `device_id` of kind `device_target`."""

    device_target: str
    device_id: int
    rank: int
    device_num: int


def init_context(
    *,
    device_target: str | None,
    device_id: int | None,
    seed: int,
    all_reduce_fusion: Sequence[int] = (),
) -> Runtime:
    """Choose the device, GRAPH mode and MindSpore's seed; join the other ranks, if there are any.

    Call it before the first Cell is built: a `TrainStep` of several ranks averages its gradients over them.

    Args:
        device_target: CPU, GPU or Ascend; None takes what the installed MindSpore was built for.
        device_id: number of the card; None takes DEVICE_ID of the environment, or 0.
        seed: seeds the weights, the same on all ranks.
        all_reduce_fusion: numbers of parameters after which a new all-reduce of the gradients begins; empty
            leaves it to MindSpore.

    Raises:
        UserError: the installed MindSpore has no such device, or the environment tells half of the ranks.
    """
    target = device_target or ms.get_context("device_target")
    device = local_adapter.get_device_id() if device_id is None else device_id
    try:
        ms.set_device(target, device)
    except (RuntimeError, ValueError) as error:
        in_use = (ms.get_context("device_target"), ms.get_context("device_id"))
        if "has been initialized" not in str(error) or in_use != (target, device):
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"device_target {target} with device_id {device} cannot be used here: {reason}"
            ) from error
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(seed)
    ms.dataset.config.set_prefetch_size(1)  # our loader decodes ahead; 16 more batches are too many
    place = local_adapter.get_place()
    if place.device_num > 1:
        _join(place, all_reduce_fusion)
    return Runtime(target, device, place.rank, place.device_num)


def _join(place: local_adapter.Place, all_reduce_fusion: Sequence[int]) -> None:
    """Meet the other ranks and make MindSpore's engine average the gradients."""
    communication.init()
    found = (communication.get_rank(), communication.get_group_size())
    if found != place:
        raise UserError(
            f"the environment says rank {place.rank} of {place.device_num}, MindSpore {found}; {LAUNCH}"
        )
    options = {"all_reduce_fusion_config": list(all_reduce_fusion)} if all_reduce_fusion else {}
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL,
        gradients_mean=True,
        device_num=place.device_num,
        global_rank=place.rank,
        **options,
    )


def check_agreement(facts: Mapping[str, object], device_num: int) -> None:
    """Raise `UserError` on every rank unless all have the same facts: else they would wait for each other.

    Args:
        facts: name -> what `repr` tells apart; the same names on all ranks.
        device_num: number of ranks.
    """
    if device_num == 1:
        return
    digests = [int(hashlib.sha256(repr(fact).encode()).hexdigest()[:6], 16) for fact in facts.values()]
    gathered = ops.AllGather()(ms.Tensor(np.array(digests, np.float32))).asnumpy()  # 24 bits are exact
    rows = gathered.reshape(device_num, len(facts))
    different = [name for name, column in zip(facts, rows.T) if (column != column[0]).any()]
    if different:
        raise UserError(
            f"the ranks differ in {', '.join(different)}; let all of them see the same files and keys"
        )


def wait_for_all(device_num: int) -> None:
    """Return when all ranks have come here."""
    if device_num > 1:
        ops.AllReduce()(ms.Tensor([0.0], ms.float32)).asnumpy()


def choose_amp_level(level: str | None, dtype: str, runtime: Runtime) -> str:
    """The level of mixed precision; None is O3 on Ascend, whose hardware is made for it, and O0 elsewhere.

    Raises:
        UserError: `dtype` is bfloat16 and the device cannot compute in it; Ascend can from 910B on, GPUs from
            compute capability 8.
    """
    level = level or ("O3" if runtime.device_target == "Ascend" else "O0")
    device = "" if dtype == "float16" else _without_bfloat16(runtime)
    if device:
        raise UserError(
            f"amp_dtype bfloat16 needs Ascend 910B or a GPU of capability 8.0, not {device}; use float16"
        )
    if dtype != "float16" and level == "O0":
        raise UserError(
            f"amp_dtype {dtype} belongs to mixed precision, and amp_level is O0; set another level"
        )
    return level


def _without_bfloat16(runtime: Runtime) -> str:
    """What the device is when it cannot compute in bfloat16; empty when it can."""
    if runtime.device_target == "CPU":
        return "a CPU"
    if runtime.device_target == "GPU":
        capability = tuple(ms.hal.get_device_capability(runtime.device_id))
        return "" if capability >= (8, 0) else f"a GPU of compute capability {capability[0]}.{capability[1]}"
    name = ms.hal.get_device_name(runtime.device_id)
    return "" if re.fullmatch(r"Ascend910(B[1-9]|_9|C).*", name) else f"an {name}"


def peak_memory(runtime: Runtime) -> int:
    """Bytes that this process has used at most: of the device, or of the machine on a CPU."""
    if runtime.device_target == "CPU":
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return ms.runtime.max_memory_allocated()


NO_MEMORY = re.compile(
    r"out of memory|memory (is )?(not|isn't) enough|not enough memory|"
    r"(alloc\w*|malloc)\b[^\n]*\bmemory\b[^\n]*fail|memory[^\n]*(alloc\w*|malloc)[^\n]*fail|bad_alloc",
    re.IGNORECASE,
)


def raise_if_out_of_memory(error: RuntimeError) -> None:
    """Raise `UserError` if MindSpore's `error` says that memory ran out.

    Only its message counts: the call stack below names `OnMemoryAllocFinish` and the like, whatever failed.
    """
    message = re.split(r"- (The Function|C\+\+) Call Stack", str(error))[0]
    if NO_MEMORY.search(message):
        raise UserError(
            "memory is not enough; lower batch_size or eval_batch_size, or raise batch_split"
        ) from error
