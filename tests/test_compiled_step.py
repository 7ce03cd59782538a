"""The number and kinds of operators in a compiled training step, which no noise can move.

A change that makes a step slower mostly shows here: another operator, a copy, a broadcast, a plain operator
in the place of a compiled one. If it is meant to be, the table is changed with it.
"""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What computes nothing: ways of values and of order through the graph.
FREE = {"Depend", "Flatten", "Load", "MakeTuple", "Reshape", "TupleGetItem", "UpdateState"}
KINDS = {
    "bit_tiny": {
        "Add": 4, "AddN": 5, "AssignAdd": 1, "BiasAdd": 1, "BiasAddGrad": 1, "Conv2D": 1,
        "Conv2DBackpropFilter": 1, "Conv2DBackpropInput": 1, "Gather": 1, "IsFinite": 2, "LogSoftmax": 1,
        "LogSoftmaxGrad": 1, "LogicalAnd": 1, "Mul": 6, "Neg": 1, "OneHot": 1, "RealDiv": 2,
        "ReduceMean": 2, "ReduceSum": 1, "Select": 2, "Sqrt": 1, "Stack": 2, "StridedSlice": 2, "Tile": 1,
        "apply_momentum": 45, "convolution": 17, "convolution_grad": 16, "convolution_grad_weight": 1,
        "group_norm_relu": 13, "group_norm_relu_grad": 13, "square_sum": 45, "standardise": 17,
        "standardise_grad": 17, "zero_pad_max_pool": 1, "zero_pad_max_pool_grad": 1,
    },
    "vit_nano_patch8": {
        "Add": 9, "AddN": 13, "AssignAdd": 1, "BroadcastTo": 1, "Concat": 1, "Div": 1, "Gather": 3,
        "IsFinite": 2, "LogSoftmax": 1, "LogSoftmaxGrad": 1, "LogicalAnd": 1, "Mul": 8, "Neg": 1,
        "OneHot": 1, "RealDiv": 1, "ReduceMean": 1, "ReduceSum": 3, "Select": 2, "Slice": 2, "Sqrt": 1,
        "Stack": 2, "StridedSlice": 5, "StridedSliceGrad": 3, "Tile": 1, "adam_weight_decay": 72,
        "attention": 4, "attention_grad": 4, "gelu_tanh": 4, "gelu_tanh_grad": 4, "layer_norm": 9,
        "layer_norm_grad": 9, "linear": 25, "linear_grad": 25, "patch_linear": 1, "patch_linear_grad": 1,
        "square_sum": 72,
    },
}  # fmt: skip


def kinds_of(folder):
    """Operators of all graphs that were built, compiled ones by their own names."""
    found = Counter()
    for path in folder.glob("graph_build_*.ir"):
        for line in path.read_text(encoding="utf-8").splitlines():
            operator = re.search(r" = (?:PrimFunc_)?([A-Z]\w*)\(", line)
            if operator and operator[1] == "Custom":
                found[re.search(r'func_name: "[^"]*:(\w+)"', line)[1]] += 1
            elif operator and operator[1] not in FREE:
                found[operator[1]] += 1
    return dict(found)


@pytest.mark.parametrize("name", KINDS)
def test_a_step_has_these_operators_and_no_others(name, tmp_path):
    env = {**os.environ, "MS_DEV_SAVE_GRAPHS": "1", "MS_DEV_SAVE_GRAPHS_PATH": str(tmp_path)}
    env["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "tests/compiled_step.py", name]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert kinds_of(tmp_path) == KINDS[name]
