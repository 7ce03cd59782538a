"""The rule of the layers: which module of `src` may import what. One direction only."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src"

PURE = {  # no MindSpore
    "array_io", "atomic", "autoaugment", "bit_hyperrule", "cifar", "ckpt_format", "class_map", "convert",
    "cpu_kernels.build", "cpu_kernels.pixels", "curves", "dataset", "errors", "events_file",
    "export_place", "few_shot", "image_cache", "image_folder", "image_io", "infer_result", "loader",
    "logging", "lr_generator", "metric", "metrics_file", "mixup", "model_utils.archives",
    "model_utils.config", "model_utils.key", "model_utils.launching", "model_utils.local_adapter",
    "model_utils.moxing_adapter", "model_utils.once", "model_utils.processes", "model_utils.rank_table",
    "model_utils.schema", "model_utils.transfer", "model_utils.values", "npz_file", "npz_map", "onnx_bit",
    "onnx_builder", "onnx_graph", "onnx_vit", "param_rules", "photo", "pixels", "preprocessor",
    "progress", "recipe", "record", "resume", "run_folder", "safetensors_format", "sidecar", "signals",
    "streams", "transforms", "user_cache", "user_files", "vit_hyperrule", "vit_map", "weight_file",
}  # fmt: skip
CELLS = {
    "bit", "bit_operators", "callback", "checkpointing", "compile_cache", "cross_entropy", "dropout",
    "early_stop", "encoder", "float32_cell", "optimizer", "profiling", "state_monitor", "train_step", "vit",
    "vit_operators", "watching", "weight_average",
}  # fmt: skip
ASSEMBLY = {  # import those and each other
    "checkpoint", "context", "cpu_kernels.bit_cells", "cpu_kernels.install", "cpu_kernels.library",
    "cpu_kernels.plain_cells", "cpu_kernels.update_cells", "cpu_kernels.vit_cells", "eval_engine", "fold",
    "from_config", "mindir_nodes", "mindir_v1", "network", "step_source", "train_state", "trained",
}  # fmt: skip
USE_CASES = {"beginning", "evaluator", "exporter", "learner", "plan", "run_callbacks", "trainer"}
LEVEL = {name: level for level, names in enumerate((PURE, CELLS, ASSEMBLY, USE_CASES)) for name in names}


def modules():
    for path in sorted(SRC.rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join(path.relative_to(SRC).with_suffix("").parts), path


def imported(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def ours(names):
    return {n[len("src.") :] for n in names if n.startswith("src.") and n[len("src.") :] in LEVEL}


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=[name for name, _ in modules()])
def test_a_module_imports_downwards_only(name, path):
    assert name in LEVEL, f"say in this test which layer src/{name.replace('.', '/')}.py belongs to"
    names = imported(path)
    above = {other for other in ours(names) if LEVEL[other] > LEVEL[name]}
    if name in CELLS:  # Cells know no other Cells, but for those that are made to be parts
        parts = {"bit_operators", "callback", "dropout", "float32_cell", "vit_operators", "weight_average"}
        parts |= {"encoder"} if name == "vit" else set()
        above |= (ours(names) & CELLS) - parts
    assert not above
    if name in PURE:
        assert not {n for n in names if n.split(".")[0] == "mindspore"}
    if name not in USE_CASES and not name.startswith("model_utils"):
        assert "model_utils.config" not in ours(names)


@pytest.mark.parametrize(
    "script",
    ["convert_npz2ckpt", "create_imagenet2012_label", "eval", "export", "postprocess", "preprocess", "train"],
)
def test_an_entry_script_is_short_and_has_a_main(script):
    text = (SRC.parent / f"{script}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert "def main(argv=None) -> int:" in text
