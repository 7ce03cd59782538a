"""The compiled operators against float64 NumPy, and what becomes of a machine that cannot have them."""

import math
import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn, ops

from src import bit_operators, vit_operators
from src.cpu_kernels import build
from src.cpu_kernels.install import COMPILED, NOT_COMPILED, install_cpu_kernels
from src.cpu_kernels.library import Library
from src.network import get_network
from src.optimizer import AdamWUpdate, MomentumUpdate, get_optimizer
from src.train_step import SquareSum, TrainStep

RNG = np.random.default_rng


@pytest.fixture(scope="module", autouse=True)
def graph_mode():
    ms.set_context(mode=ms.GRAPH_MODE)


@pytest.fixture(scope="module")
def library():
    return Library(2)


def windows(x, side, stride):
    """(N, C, H, W) -> (N, C, ceil(H / s), ceil(W / s), k, k), with zeros around."""
    around = (side - 1) // 2
    padded = np.pad(x, ((0, 0), (0, 0), (around, around), (around, around)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (side, side), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def convolution(stride):
    return lambda x, w: np.einsum("nchwij,dcij->ndhw", windows(x, w.shape[2], stride), w, optimize=True)


def normed(rows, epsilon):
    centred = rows - rows.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


def group_norm_relu(x, gamma, beta):
    y = normed(x.reshape(len(x), 32, -1), 1e-5).reshape(x.shape)
    return np.maximum(y * gamma[:, None, None] + beta[:, None, None], 0)


def gelu(kind):
    if kind == "tanh":
        return lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    erf = np.vectorize(math.erf)
    return lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))


def patches(x, w, b):
    n, c, height, width = x.shape
    p = w.shape[2]
    cut = x.reshape(n, c, height // p, p, width // p, p).transpose(0, 2, 4, 1, 3, 5)
    return cut.reshape(n, height // p * (width // p), -1) @ w.reshape(len(w), -1).T + b


def attention(heads):
    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def run(q, k, v):
        scores = split(q) @ split(k).swapaxes(2, 3) / math.sqrt(q.shape[2] // heads)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return (weights @ split(v)).transpose(0, 2, 1, 3).reshape(q.shape)

    return run


def padded_pool(x):
    return windows(x, 3, 2).max((-1, -2))


def conv_case(n, c, height, width, d, side, stride):
    plain = bit_operators.Convolution(c, d, side, stride)
    return plain, convolution(stride), [(n, c, height, width), (d, c, side, side)], {0} if c == 3 else set()


def norm_case(*shape):
    plain = bit_operators.GroupNormRelu(32, 1e-5)
    return plain, group_norm_relu, [shape, (shape[1],), (shape[1],)], set()


def layer_case(*shape):
    plain = vit_operators.LayerNorm(1e-6)
    return plain, lambda x, g, b: normed(x, 1e-6) * g + b, [shape, shape[-1:], shape[-1:]], set()


def linear_case(*shape, outputs):
    shapes = [shape, (outputs, shape[-1]), (outputs,)]
    return vit_operators.Linear(), lambda x, w, b: x @ w.T + b, shapes, set()


def patch_case(n, height, width, p, d):
    return vit_operators.PatchLinear(p, d), patches, [(n, 3, height, width), (d, 3, p, p), (d,)], {0}


def heads_case(n, s, t, dim, heads):
    plain = vit_operators.HeadsAttention(dim, heads, 0.0)
    return plain, attention(heads), [(n, s, dim), (n, t, dim), (n, t, dim)], set()


# The operator, the same in NumPy, the shapes of its inputs, and which of them have no gradient.
CASES = {
    "standardise": (
        bit_operators.Standardise(77, 1e-10), lambda w: normed(w, 1e-10), [(5, 77)], set(),
    ),
    "conv 1x1": conv_case(3, 5, 13, 11, 7, 1, 1),
    "conv 1x1 of few pixels": conv_case(3, 70, 3, 2, 9, 1, 1),
    "conv 1x1 stride 2": conv_case(2, 6, 27, 19, 5, 1, 2),
    "conv 3x3": conv_case(1, 4, 17, 12, 6, 3, 1),
    "conv 3x3 of few pixels": conv_case(9, 4, 5, 3, 6, 3, 1),
    "conv 3x3 of one pixel": conv_case(2, 4, 1, 1, 6, 3, 1),
    "conv 3x3 stride 2": conv_case(2, 4, 31, 26, 5, 3, 2),
    "conv 3x3 stride 2 of few pixels": conv_case(5, 4, 4, 7, 5, 3, 2),
    "conv of a large image": conv_case(1, 4, 150, 131, 8, 3, 1),
    "root": conv_case(2, 3, 33, 40, 8, 7, 2),
    "root of a small image": conv_case(2, 3, 9, 8, 8, 7, 2),
    "group norm": norm_case(3, 64, 5, 7),
    "group norm of one image": norm_case(1, 32, 1, 3),
    "group norm of a large image": norm_case(2, 96, 41, 53),
    "pool": (bit_operators.ZeroPadMaxPool(), padded_pool, [(2, 3, 8, 10)], set()),
    "pool of odd sides": (bit_operators.ZeroPadMaxPool(), padded_pool, [(1, 2, 7, 135)], set()),
    "layer norm": layer_case(3, 7, 40),
    "layer norm of many rows": layer_case(50, 13, 200),
    "gelu tanh": (vit_operators.Gelu("tanh"), gelu("tanh"), [(3, 5, 700)], set()),
    "gelu exact": (vit_operators.Gelu("exact"), gelu("exact"), [(9001,)], set()),
    "linear": linear_case(3, 5, 40, outputs=7),
    "linear of one row": linear_case(1, 9, outputs=2),
    "linear, large": linear_case(65, 130, outputs=190),
    "patches": patch_case(2, 12, 8, 4, 10),
    "one patch": patch_case(1, 5, 5, 5, 3),
    "attention": heads_case(2, 7, 7, 24, 3),
    "attention of one token": heads_case(3, 1, 9, 16, 2),
    "attention of many tokens": heads_case(1, 130, 130, 32, 4),
}  # fmt: skip


class WithGradients(nn.Cell):
    """Inputs and the output's gradient -> output, and the gradient of each input."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell
        self.grad = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, dout, *inputs):
        return self.cell(*inputs), self.grad(self.cell)(*inputs, dout)


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_operator_and_its_gradient_equal_float64(name, library):
    plain, *rest = CASES[name]
    check_against_float64(COMPILED[type(plain)](library, plain), *rest)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if type(case[0]) in NOT_COMPILED])
def test_what_stands_in_without_a_compiler_equals_float64(name):
    plain, *rest = CASES[name]
    check_against_float64(NOT_COMPILED[type(plain)](plain), *rest)


def check_against_float64(cell, function, shapes, constant):
    """The operator, and its gradient along random directions."""
    rng = RNG(7)
    inputs = [rng.normal(0.2, 1, shape).astype(np.float32) for shape in shapes]
    exact = [value.astype(np.float64) for value in inputs]
    expected = function(*exact)
    dout = rng.normal(size=expected.shape).astype(np.float32)

    found, grads = WithGradients(cell)(ms.Tensor(dout), *map(ms.Tensor, inputs))

    scale = np.abs(expected).max()
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=0, atol=3e-6 * max(1, scale))
    for index, (value, grad) in enumerate(zip(exact, grads)):
        assert grad.shape == value.shape
        if index in constant:
            continue
        for _ in range(3):  # the slope along a random direction, by differences in float64
            direction = rng.normal(size=value.shape)
            step = 1e-6 * direction
            ahead, behind = (
                function(*exact[:index], value + sign * step, *exact[index + 1 :]) for sign in (1, -1)
            )
            slope = ((ahead - behind) * dout).sum() / 2e-6
            along = grad.asnumpy().astype(np.float64)
            bound = 1e-5 * np.linalg.norm(along) + 1e-5
            assert (along * direction).sum() == pytest.approx(slope, abs=bound)


def test_attention_has_one_and_the_same_weights_forward_and_backward(library):
    """They are computed again for the gradient: scores of some 10,000 would show another rounding."""
    plain, _, shapes, _ = heads_case(2, 7, 9, 24, 3)
    rng = RNG(5)
    q, k, v = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    q, k = 60 * q, 60 * k
    k[:, 1:] = k[:, :1] + np.float32(1e-4) * k[:, 1:]  # and yet no weight is 0 or 1
    dout = rng.normal(size=q.shape).astype(np.float32)
    cell = WithGradients(COMPILED[type(plain)](library, plain))
    y, (_, _, grad) = cell(*map(ms.Tensor, (dout, q, k, v)))  # both are linear: <dout, W v> = <W^T dout, v>
    expected = (y.asnumpy().astype(np.float64) * dout).sum()
    assert (grad.asnumpy().astype(np.float64) * v).sum() == pytest.approx(expected, abs=1e-5)


def test_not_a_number_is_not_hidden(library):
    for plain, _, shapes, _ in CASES.values():
        inputs = [np.ones(shape, np.float32) for shape in shapes]
        inputs[0].flat[0] = np.nan
        cell = COMPILED[type(plain)](library, plain)
        assert np.isnan(cell(*map(ms.Tensor, inputs)).asnumpy()).any(), type(plain)


def test_constant_rows_are_standardised_to_zero(library):
    cell = COMPILED[bit_operators.Standardise](library, bit_operators.Standardise(4608, 1e-10))
    np.testing.assert_array_equal(cell(ms.Tensor(np.full((3, 4608), 0.3, np.float32))).asnumpy(), 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_group_norm_is_right_far_from_zero(library, compiled):
    plain, function, _, _ = norm_case(1, 32, 2, 2)
    cell = COMPILED[type(plain)](library, plain) if compiled else NOT_COMPILED[type(plain)](plain)
    x = RNG(1).normal(100, 0.5, (2, 64, 31, 9)).astype(np.float32)
    ones, zeros = np.ones(64, np.float32), np.zeros(64, np.float32)
    found = cell(*map(ms.Tensor, (x, ones, zeros))).asnumpy()
    np.testing.assert_allclose(found, function(x.astype(np.float64), ones, zeros), rtol=0, atol=1e-4)


def test_a_square_sum_keeps_its_digits(library):
    x = RNG(2).normal(size=(70001,)).astype(np.float32)
    found = COMPILED[SquareSum](library, SquareSum())(ms.Tensor(x)).asnumpy()
    assert found.shape == ()
    np.testing.assert_allclose(found, (x.astype(np.float64) ** 2).sum(), rtol=1e-6)


class Apply(nn.Cell):
    """Holds the parameters of an update, which it changes in place."""

    def __init__(self, update, *values):
        super().__init__()
        self.update = update
        self.params = ms.ParameterTuple(
            ms.Parameter(ms.Tensor(value), name=f"p{index}") for index, value in enumerate(values)
        )

    def construct(self, *rest):
        return self.update(*self.params, *rest)


@pytest.mark.parametrize(
    ("plain", "states", "numbers"),
    [(MomentumUpdate(0.9), 2, [0.1]), (AdamWUpdate(0.9, 0.999), 3, [0.1, 1e-6, 0.03])],
)
def test_an_update_in_place_is_that_of_the_plain_operator(plain, states, numbers, library):
    rng = RNG(3)
    values = [np.abs(rng.normal(size=(37, 500))).astype(np.float32) for _ in range(states)]
    rest = [ms.Tensor(number, ms.float32) for number in numbers]
    rest.append(ms.Tensor(rng.normal(size=(37, 500)).astype(np.float32)))
    cells = Apply(plain, *values), Apply(COMPILED[type(plain)](library, plain), *values)
    for cell in cells:
        cell(*rest)
        cell(*rest)
    for one, other in zip(*(cell.params for cell in cells)):
        assert np.abs(one.asnumpy() - values[0]).max() > 1e-3
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=2e-6, atol=2e-7)


def test_wrong_types_are_refused(library):
    operator = library.operator("square_sum", lambda _: [1])
    with pytest.raises(RuntimeError, match="square_sum"):
        operator(ms.Tensor(np.ones(3, np.float16))).asnumpy()


@pytest.mark.parametrize(("name", "arguments"), [("bit_tiny", {}), ("vit_nano_patch8", {"image_size": 32})])
def test_everything_of_a_training_step_is_compiled(name, arguments):
    step = training_step(name, **arguments)
    assert install_cpu_kernels(step, wanted=True, device_target="CPU")
    left = {type(cell) for _, cell in step.cells_and_names()} & set(COMPILED)
    assert not left


def training_step(name, **arguments):
    ms.set_seed(0)
    network = get_network(name, num_classes=3, **arguments)
    optimizer = get_optimizer("momentum", network.trainable_params(), np.full(9, 0.01, np.float32))
    return TrainStep(nn.WithLossCell(network, nn.CrossEntropyLoss()), optimizer).set_train()


@pytest.mark.parametrize("wanted", [True, False])
def test_parameters_keep_their_names_and_steps_their_results(library, wanted):
    images = RNG(0).normal(size=(3, 3, 33, 40)).astype(np.float32)
    batch = ms.Tensor(images), ms.Tensor([0, 2, 1], ms.int32)
    plain, compiled = training_step("bit_tiny"), training_step("bit_tiny")
    names = [param.name for param in compiled.get_parameters()]
    install_cpu_kernels(compiled, wanted=wanted, device_target="CPU")
    replaced = COMPILED if wanted else NOT_COMPILED
    assert not {type(cell) for _, cell in compiled.cells_and_names()} & set(replaced)
    assert [param.name for param in compiled.get_parameters()] == names
    for _ in range(2):
        (loss, norm, _), (expected_loss, expected_norm, _) = compiled(*batch), plain(*batch)
        np.testing.assert_allclose(loss.asnumpy(), expected_loss.asnumpy(), rtol=1e-5)
        np.testing.assert_allclose(norm.asnumpy(), expected_norm.asnumpy(), rtol=1e-4)
    for one, other in zip(compiled.get_parameters(), plain.get_parameters()):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=0, atol=2e-5, err_msg=one.name)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"wanted": False, "device_target": "CPU"}, ""),
        ({"wanted": True, "device_target": "Ascend"}, ""),
        ({"wanted": True, "device_target": "CPU", "amp_level": "O2"}, "since amp_level is O2"),
    ],
)
def test_nothing_is_compiled_where_it_cannot_be(how, said, caplog):
    caplog.set_level("INFO")
    net = get_network("bit_tiny", num_classes=3)
    assert not install_cpu_kernels(net, **how)
    assert any(type(cell) in COMPILED for _, cell in net.cells_and_names())
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


@pytest.fixture
def source(monkeypatch, tmp_path):
    """Stands for `csrc`, with a cache of its own."""
    folder = tmp_path / "source"
    folder.mkdir()
    monkeypatch.setattr(build, "SOURCE", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_the_error_of_the_compiler_is_shown(source, tmp_path):
    (source / "broken.cc").write_text("int f() { return nonsense; }\n")
    with pytest.raises(build.BuildError, match="nonsense"):
        build.library()
    assert not list(tmp_path.rglob("*.so"))


@pytest.mark.parametrize(
    ("cxx", "said"),
    [("false", "false failed: code 1, and no library"), ("true", "true failed: code 0, and no library"),
     ("none-such g++", "CXX, none-such, was not found")],
)  # fmt: skip
def test_a_compiler_that_does_not_work_is_tried_once_and_named(cxx, said, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", cxx)
    caplog.set_level("INFO")
    for _ in range(3):
        with pytest.raises(build.BuildError, match=said):
            build.library()
    assert caplog.text.count("compiling the operators") == (said[0] != "C")


def test_words_of_cxx_are_passed_on(source, monkeypatch):
    (source / "one.cc").write_text("#ifndef WANTED\n#error not wanted\n#endif\n")
    with pytest.raises(build.BuildError, match="not wanted"):
        build.library()
    monkeypatch.setenv("CXX", "g++ -DWANTED")
    assert build.library().is_file()


@pytest.mark.parametrize("damage", [b"", b"no library", None])
def test_a_damaged_library_is_built_anew(damage, source):
    exported = 'extern "C" __attribute__((visibility("default")))'
    (source / "one.cc").write_text(f"{exported} int one() {{ return 1; }}\n")
    path = build.library()
    content = path.read_bytes()
    path.write_bytes(content[:1000] if damage is None else damage)
    assert build.load(build.library()).one() == 1
    assert path.read_bytes() == content


def test_the_cache_is_keyed_by_all_that_shapes_the_library(source, monkeypatch, caplog):
    (source / "one.cc").write_text("int f() { return 1; }\n")
    caplog.set_level("INFO")
    made = [build.library(), build.library()]
    monkeypatch.setattr(build, "_mindspore", lambda: "another")
    made.append(build.library())
    assert caplog.text.count("compiling the operators, once for this machine") == 2
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DMORE"))
    made.append(build.library())
    (source / "one.cc").write_text("int f() { return 2; }\n")
    made.append(build.library())
    monkeypatch.setattr(build, "_processor", lambda: "another")
    made.append(build.library())
    assert made[0] == made[1]
    assert len(set(made)) == 5


def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(build.BuildError, match=r"cannot write .*file"):
        build.library()


def test_two_processes_build_once_and_both_compute(tmp_path):
    script = (
        "import mindspore as ms, numpy as np\n"
        "from src.cpu_kernels.library import Library\n"
        "total = Library(2).operator('square_sum', lambda _: [1])(ms.Tensor(np.ones(9999, np.float32)))\n"
        "print('sum', total.asnumpy()[0])\n"
    )
    root = Path(__file__).parents[1]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(root)}
    both = [
        subprocess.Popen([sys.executable, "-c", script], env=env, cwd=root, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert all("sum 9999.0" in process.communicate()[0] for process in both)
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_kernels_called_by_several_threads_at_once_do_not_race(tmp_path):
    """The thread sanitizer ends the program at the first race; the results are compared, too."""
    folder = Path(__file__).parent
    (compiler,) = build._compiler()
    program, gemm = tmp_path / "race", tmp_path / "libgemm.so"
    flags = ["-std=c++17", "-O1", "-fsanitize=thread", "-fopenmp-simd", "-pthread"]
    sources = [folder / "race.cc", *build.SOURCE.glob("*.cc")]
    made = subprocess.run([compiler, *flags, *sources, "-o", program, "-ldl"], capture_output=True, text=True)
    if "tsan" in made.stderr:
        pytest.skip("the compiler has no thread sanitizer")
    assert made.returncode == 0, made.stderr
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", folder / "plain_gemm.cc", "-o", gemm], check=True)
    result = subprocess.run([program, gemm], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
