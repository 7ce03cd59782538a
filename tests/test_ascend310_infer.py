"""The C++ program: its own unit tests, and the program itself where MindSpore Lite is at hand."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from support import uniform_images

from src.fold import fold
from src.network import get_network

PROJECT = Path(__file__).parents[1]
INFER = PROJECT / "ascend310_infer"
LITE = Path(os.environ.get("MINDSPORE_LITE_HOME") or PROJECT / ".lite" / "mindspore_lite")
TOOLS = all(map(shutil.which, ("cmake", "ctest", "make", os.environ.get("CXX", "c++").split()[0])))

needs_compiler = pytest.mark.skipif(not TOOLS, reason="needs CMake, make and a C++ compiler")


def command(*arguments, **environment) -> subprocess.CompletedProcess:
    environment = {**os.environ, **environment}
    return subprocess.run(
        list(map(str, arguments)), capture_output=True, text=True, env=environment, check=False
    )


def tensors(root: Path) -> dict[str, np.ndarray]:
    """Every `.bin` below a folder, by its relative name."""
    files = sorted(root.rglob("*.bin"))
    return {file.relative_to(root).as_posix(): np.fromfile(file, np.float32) for file in files}


class TwoOutputs(nn.Cell):
    def construct(self, x):
        return x + 1.0, x * 2.0


def mindir(network: nn.Cell, images: np.ndarray, target: Path) -> Path:
    """A MindIR of version 1, for a batch like `images`."""
    rewrite = pytest.importorskip("src.mindir_v1", reason="there is no src/mindir_v1.py").rewrite
    newest = target.with_name(f"newest_{target.name}")
    ms.export(network, ms.Tensor(images), file_name=str(newest), file_format="MINDIR")
    rewrite(newest, target)
    return target


def build(*flags) -> str:
    answer = command("bash", INFER / "build.sh", *flags)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


@pytest.fixture(scope="module")
def program():
    if not TOOLS or not LITE.is_dir():
        pytest.skip("needs a C++ compiler and MindSpore Lite: bash scripts/get_lite_cpu.sh")
    build()
    return INFER / "out" / "infer"


@pytest.fixture(scope="module")
def sanitized():
    """Build under the address sanitizer and run the unit tests: what they print."""
    return build("--asan") if LITE.is_dir() else build("--asan", "--no-model")


class Case:
    """A network, its model file, and a folder of images for it."""

    def __init__(self, root: Path, name: str, batch: int, images: int, **overrides):
        network = get_network(name, num_classes=5, image_size=(32, 40), **overrides)
        rng = np.random.default_rng(3)
        for parameter in network.head.get_parameters():
            parameter.set_data(ms.Tensor(rng.normal(0, 0.3, parameter.shape).astype(np.float32)))
        fold(network)
        pixels = uniform_images(images, 32, 40, seed=1)
        self.model = mindir(network, pixels[:batch], root / f"{name}.mindir")
        self.input_dir = root / "in"
        self.logits = {}
        for index, image in enumerate(pixels):
            file = self.input_dir / ("even" if index % 2 == 0 else "odd") / f"{index}.bin"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.tofile(file)
            self.logits[file.relative_to(self.input_dir).as_posix()] = network(
                ms.Tensor(image[None])
            ).asnumpy()[0]


@pytest.fixture(scope="module")
def vit(program, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("vit"), "vit_nano_patch8", batch=4, images=7)


@pytest.fixture(scope="module")
def bit(program, tmp_path_factory):
    return Case(tmp_path_factory.mktemp("bit"), "bit_tiny", batch=1, images=3)


@pytest.fixture
def many(bit, tmp_path):
    """A folder of 3000 images, which is one image under many names."""
    folder = tmp_path / "many"
    folder.mkdir()
    for index in range(3000):
        os.link(bit.input_dir / "odd" / "1.bin", folder / f"{index}.bin")
    return folder


def arguments_of(program, case, tmp_path, **changes) -> list[str]:
    flags = {
        "model": case.model, "input_dir": case.input_dir, "output_dir": tmp_path / "out",
        "time_dir": tmp_path / "time", "device": "CPU", "progress": 0, **changes,
    }  # fmt: skip
    return [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]


def infer(program, case, tmp_path, **changes) -> subprocess.CompletedProcess:
    return command(*arguments_of(program, case, tmp_path, **changes))


def assert_refused(answer: subprocess.CompletedProcess, words: str) -> None:
    assert answer.returncode == 1, answer.stderr
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
    assert words in answer.stderr


@needs_compiler
def test_the_parts_without_a_device_pass_their_tests_under_the_address_sanitizer(sanitized):
    assert "100% tests passed, 0 tests failed out of 6" in sanitized


@pytest.fixture(scope="module")
def configure(tmp_path_factory):
    """Ask CMake for the library below a folder; the text it answers with."""
    build = tmp_path_factory.mktemp("cmake")

    def answer(home: Path) -> str:
        unset = ("-UMINDSPORE_INCLUDE", "-UMINDSPORE_LIBRARY")
        answer = command("cmake", "-S", INFER, "-B", build, *unset, f"-DMINDSPORE_LITE_HOME={home}")
        return answer.stdout + answer.stderr

    return answer


@needs_compiler
@pytest.mark.parametrize(
    ("header", "library"),
    [
        ("runtime/include", "runtime/lib/libmindspore-lite.so"),
        ("include", "lib/libmindspore-extendrt.so"),
        ("mindspore_lite/include", "mindspore_lite/lib/libmindspore-extendrt_python.so"),
        ("include", "lib/libmindspore.so"),
    ],
    ids=["package", "runtime of a package", "wheel", "mindspore for Ascend 310"],
)
def test_the_library_is_found_in_every_layout(configure, tmp_path, header, library):
    for file in (tmp_path / header / "api" / "model.h", tmp_path / library):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert f"MindSpore: {tmp_path / header}/api, {tmp_path / library}\n" in configure(tmp_path)


@needs_compiler
def test_a_missing_library_is_told_with_the_places_that_were_searched(configure, tmp_path):
    (tmp_path / "runtime" / "include" / "api").mkdir(parents=True)
    (tmp_path / "runtime" / "include" / "api" / "model.h").touch()
    text = configure(tmp_path)
    assert f"MINDSPORE_LITE_HOME is {tmp_path}\n" in text
    assert "not found:\n     lib/ with one of libmindspore-lite.so, libmindspore-extendrt.so" in text
    assert f"looked for in:\n     {tmp_path}\n     {tmp_path}/runtime\n" in text
    assert "include/api/model.h" not in text  # which is there


def test_build_refuses_a_missing_folder_and_an_unknown_option_in_one_line(tmp_path):
    build = command("bash", INFER / "build.sh", MINDSPORE_LITE_HOME=str(tmp_path / "none"))
    if TOOLS:
        assert_refused(build, f"there is no folder {tmp_path / 'none'}; set MINDSPORE_LITE_HOME")
    assert_refused(command("bash", INFER / "build.sh", "--fast"), "there is no option '--fast'")


def test_a_wheel_with_another_checksum_is_refused_and_leaves_nothing(tmp_path):
    name = "mindspore_lite-2.0.0"
    with zipfile.ZipFile(tmp_path / f"{name}-cp37-cp37m-manylinux1_x86_64.whl", "w") as wheel:
        wheel.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: mindspore-lite\nVersion: 2.0.0\n"
        )
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: cp37-cp37m-manylinux1_x86_64\n")
        wheel.writestr("mindspore_lite/lib/libmindspore-extendrt_python.so", "not the library")
    script = PROJECT / "scripts" / "get_lite_cpu.sh"
    answer = command(
        "bash", script, tmp_path / "lite", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path), PIP_INDEX_URL=""
    )
    assert answer.returncode == 1
    assert "is not the file that was expected (sha256 199cd0605cc9" in answer.stderr
    assert not any((tmp_path / "lite").iterdir())


def test_a_fetched_library_is_not_fetched_again(tmp_path):
    (tmp_path / "mindspore_lite").mkdir()
    answer = command("bash", PROJECT / "scripts" / "get_lite_cpu.sh", tmp_path, PYTHON="/none")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == f"export MINDSPORE_LITE_HOME='{tmp_path}/mindspore_lite'\n"


def test_a_batch_of_four_gives_the_logits_of_python_for_seven_images(program, vit, tmp_path):
    answer = infer(program, vit, tmp_path, progress=1)
    assert answer.returncode == 0, answer.stderr
    results = tensors(tmp_path / "out")
    assert list(results) == sorted(vit.logits)
    for name, logits in vit.logits.items():
        np.testing.assert_allclose(results[name], logits, rtol=0, atol=1e-4)
    assert "input 4 x 3 x 32 x 40: 7 images\n7 images in " in answer.stdout
    assert "latency of a batch of 4: p50 " in answer.stdout
    assert answer.stderr.splitlines()[-1].startswith("7/7 images, ")
    line = (tmp_path / "time" / "test_perform_static.txt").read_text()
    assert line.startswith("NN inference cost average time: ")
    assert line.endswith(" ms of infer_count 2\n")


def test_a_batch_of_one_gives_the_logits_of_python_and_replaces_old_results(program, bit, tmp_path):
    (tmp_path / "out" / "odd").mkdir(parents=True)
    (tmp_path / "out" / "odd" / "1.bin").write_bytes(b"a result of an earlier run, longer than the new one")
    assert infer(program, bit, tmp_path).returncode == 0
    results = tensors(tmp_path / "out")
    assert list(results) == sorted(bit.logits)
    for name, logits in bit.logits.items():
        np.testing.assert_allclose(results[name], logits, rtol=0, atol=1e-4)


def test_the_program_runs_under_the_address_sanitizer(program, sanitized, vit, tmp_path):
    arguments = arguments_of(INFER / "out-asan" / "infer", vit, tmp_path)
    # The library itself leaks 3 kB a run, so leaks are looked for in the unit tests only.
    answer = command(*arguments, ASAN_OPTIONS="detect_leaks=0")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert len(tensors(tmp_path / "out")) == 7


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.999])
def test_a_truncated_model_is_refused(program, vit, tmp_path, kept):
    whole = vit.model.read_bytes()
    (tmp_path / "half.mindir").write_bytes(whole[: kept if kept > 1 else int(kept * len(whole))])
    answer = infer(program, vit, tmp_path, model=tmp_path / "half.mindir")
    assert_refused(answer, f"{tmp_path}/half.mindir on CPU: cannot build the model")


def test_a_model_of_a_newer_mindir_is_refused(program, vit, tmp_path):
    newest = vit.model.with_name(f"newest_{vit.model.name}")
    assert_refused(infer(program, vit, tmp_path, model=newest), "of a MindIR version for this library")


def test_a_model_with_two_outputs_is_refused(program, vit, tmp_path):
    network = TwoOutputs()
    model = mindir(network, uniform_images(1, 32, 40, seed=0), tmp_path / "two.mindir")
    assert_refused(
        infer(program, vit, tmp_path, model=model), "two.mindir has 2 outputs; wanted is a model with one"
    )
    assert not tensors(tmp_path / "out")


def test_missing_files_and_folders_are_refused(program, vit, tmp_path):
    (tmp_path / "empty").mkdir()
    for changes, words in (
        ({"model": tmp_path / "no.mindir"}, "no.mindir is no readable file"),
        ({"input_dir": tmp_path / "none"}, "--input_dir wants a folder"),
        ({"input_dir": tmp_path / "empty"}, f"no *.bin file lies in {tmp_path}/empty"),
        ({"device": "GPU"}, "--device wants Ascend310, Ascend or CPU"),
        ({"speed": "fast"}, "there is no flag '--speed'"),
    ):
        assert_refused(infer(program, vit, tmp_path, **changes), words)


def test_an_image_of_another_size_is_refused(program, bit, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.bin").write_bytes(bytes(15356))
    answer = infer(program, bit, tmp_path, input_dir=tmp_path / "in")
    assert_refused(
        answer, "x.bin holds 15356 bytes, but the model wants 15360 (3840 float32 values) an image"
    )


def test_results_and_times_that_cannot_be_written_are_refused(program, vit, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "even").touch()
    for changes, words in (
        ({"output_dir": tmp_path / "file"}, f"cannot make the folder {tmp_path}/file"),
        ({"output_dir": "/proc/none"}, "cannot make the folder /proc/none"),
        ({"output_dir": tmp_path / "blocked"}, f"cannot make the folder {tmp_path}/blocked/even"),
        ({"output_dir": vit.input_dir / "out"}, "lies in --input_dir"),
        ({"time_dir": tmp_path / "file"}, f"cannot make the folder {tmp_path}/file"),
    ):
        assert_refused(infer(program, vit, tmp_path, **changes), words)


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="there may be a device")
@pytest.mark.parametrize("device", ["Ascend", "Ascend310"])
def test_a_device_that_is_not_there_is_refused(program, vit, tmp_path, device):
    assert_refused(infer(program, vit, tmp_path, device=device), f"on {device}: cannot build the model")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_early_leaves_whole_results_only(program, bit, many, tmp_path, sent):
    arguments = arguments_of(program, bit, tmp_path, input_dir=many)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 30
        while not (tmp_path / "out" / "0.bin").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        run.send_signal(sent)
        _, text = run.communicate(timeout=30)
    results = tensors(tmp_path / "out")
    assert 0 < len(results) < 3000
    assert {logits.nbytes for logits in results.values()} == {20}
    if sent == signal.SIGINT:
        assert run.returncode == 130
        assert text == f"interrupted: {len(results)} of 3000 images have their result\n"
        assert len(list((tmp_path / "out").iterdir())) == len(results)
    assert not (tmp_path / "time" / "test_perform_static.txt").exists()
