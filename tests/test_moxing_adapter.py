import signal
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from cloud import Ranks, config, images, write_moxing

from src.errors import UserError
from src.model_utils.moxing_adapter import moxing_wrapper, uploader

ENVIRONMENT = (
    "RANK_ID",
    "RANK_SIZE",
    "DEVICE_NUM",
    "MA_NUM_HOSTS",
    "MS_ROLE",
    "LAUNCH_RUN",
    "JOB_ID",
    "MA_VJ_NAME",
)


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine with nothing of a launcher in its environment, whose temporary folder is empty in the end."""
    for key in ENVIRONMENT:
        monkeypatch.delenv(key, raising=False)
    markers = tmp_path / "tmp"
    markers.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(markers))
    yield
    assert list(markers.iterdir()) == []


@pytest.fixture
def moxing(tmp_path, monkeypatch):
    environ = write_moxing(tmp_path)
    monkeypatch.setenv("BUCKETS", environ["BUCKETS"])
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    yield environ
    for name in ("moxing", "moxing.file"):
        sys.modules.pop(name, None)


def calls(environ):
    return Path(environ["BUCKETS"] + ".calls").read_text().splitlines()


def save(cfg, name="last.ckpt"):
    folder = Path(cfg.save_checkpoint_path, "run")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"weights of {cfg.dataset_path}")


def become_rank(monkeypatch, rank, number, **environ):
    place = {"RANK_ID": rank, "RANK_SIZE": number, "MS_SCHED_HOST": "127.0.0.1"}
    for key, value in {**place, **environ}.items():
        monkeypatch.setenv(key, str(value))


def local_config(cfg):
    return moxing_wrapper(lambda local: local)(cfg)


def test_off_the_cloud_the_run_gets_the_configuration_itself(tmp_path):
    cfg = config(tmp_path, enable_modelarts=False, data_url="s3://b/data")
    assert moxing_wrapper(lambda given: given is cfg)(cfg) is True
    assert "moxing" not in sys.modules


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_data_comes_in_and_results_go_out_between_folders(tmp_path, address):
    images(tmp_path / "my set")
    source = address.format(tmp_path / "my set").replace(" ", "%20" if "file" in address else " ")
    cfg = config(tmp_path, data_url=source, train_url=address.format(tmp_path / "out"))
    before = dict(cfg)

    def run(local):
        save(local)
        return Path(local.dataset_path, "train/cat/1.jpg").read_text()

    assert moxing_wrapper(run)(cfg) == "train/cat/1.jpg"
    text = f"weights of {tmp_path}/cache/data"
    assert (tmp_path / "out/run/last.ckpt").read_text() == text
    assert dict(cfg) == before
    assert "moxing" not in sys.modules


def test_data_weights_and_results_go_through_moxing(tmp_path, moxing):
    images(tmp_path / "buckets/b/data")
    (tmp_path / "buckets/b/vit.npz").write_text("weights")
    urls = {"data_url": "s3://b/data/", "checkpoint_url": "obs://b/vit.npz", "train_url": "s3://b/out/"}
    seen = {}

    def run(local):
        save(local)
        seen.update(local)

    moxing_wrapper(run)(config(tmp_path, **urls))
    cache = tmp_path / "cache"
    assert Path(seen["pretrained"]).read_text() == "weights"
    assert seen["pretrained"] == seen["checkpoint_path"] == f"{cache}/model/vit.npz"
    assert Path(seen["dataset_path"], "val/cat/2.jpg").is_file()
    assert (tmp_path / "buckets/b/out/run/last.ckpt").is_file()
    assert calls(moxing) == [
        f"copy_parallel s3://b/data/ {cache}/data",
        f"copy obs://b/vit.npz {cache}/model/vit.npz",
        f"copy_parallel {cache}/train s3://b/out/",
    ]


@pytest.mark.parametrize("key", ["data_url", "checkpoint_url", "train_url"])
def test_the_absence_of_moxing_is_one_line(tmp_path, key):
    with pytest.raises(
        UserError, match=r"^s3://b/x needs the package moxing.*No module named 'moxing'"
    ) as error:
        local_config(config(tmp_path, **{key: "s3://b/x"}))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", ["s3://b/none", "{}/none"])
def test_an_address_of_nothing_is_named(tmp_path, moxing, url):
    with pytest.raises(UserError, match=r"there is nothing to copy at .*/none"):
        local_config(config(tmp_path, data_url=url.format(tmp_path)))


def test_paths_that_the_user_wrote_stay(tmp_path):
    images(tmp_path / "set")
    cache = tmp_path / "cache"
    written = {
        "dataset_path": f"{cache}/data/train",
        "eval_path": f"{cache}/data/val",
        "pretrained": "/mine.npz",
    }
    (tmp_path / "w.ckpt").write_text("")
    cfg = config(tmp_path, data_url=f"{tmp_path}/set", checkpoint_url=f"{tmp_path}/w.ckpt", **written)
    local = local_config(cfg)
    assert {key: local[key] for key in written} == written
    assert local.checkpoint_path == f"{cache}/model/w.ckpt"


def test_without_addresses_only_the_results_have_another_place(tmp_path):
    cfg = config(tmp_path)
    local = {"save_checkpoint_path": cfg.output_path, "given": ("save_checkpoint_path", "file_name")}
    assert local_config(cfg) == {**cfg, **local}


def test_an_empty_eval_path_stays_empty_so_that_the_split_is_found(tmp_path):
    images(tmp_path / "set")
    local = local_config(config(tmp_path, data_url=f"{tmp_path}/set"))
    assert (local.dataset_path, local.eval_path) == (f"{tmp_path}/cache/data", "")


@pytest.mark.parametrize("source", ["w/vit.ckpt", "w"])
def test_load_path_may_name_the_file_of_weights(tmp_path, source):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/vit.ckpt").write_text("weights")
    place = tmp_path / "cache/model/vit.ckpt"
    cfg = config(tmp_path, checkpoint_url=f"{tmp_path}/{source}", load_path=str(place))
    assert local_config(cfg).pretrained == str(place)
    assert place.read_text() == "weights"


def test_a_folder_of_weights_stays_one(tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/ViT-B_32.npz").write_text("weights")
    local = local_config(config(tmp_path, checkpoint_url=f"{tmp_path}/w"))
    assert local.pretrained == f"{tmp_path}/cache/model"
    assert Path(local.pretrained, "ViT-B_32.npz").is_file()


@pytest.mark.parametrize(
    ("source", "text"),
    [("w", r"w holds no best\.ckpt, which load_path asks for"), ("w/vit.npz", "let both end alike")],
)
def test_weights_that_load_path_does_not_fit_are_refused(tmp_path, source, text):
    (tmp_path / "w").mkdir()
    (tmp_path / "w/vit.npz").write_text("weights")
    load_path = str(tmp_path / "cache/best.ckpt")
    with pytest.raises(UserError, match=text):
        local_config(config(tmp_path, checkpoint_url=f"{tmp_path}/{source}", load_path=load_path))


@pytest.mark.parametrize(
    ("file_name", "place"),
    [("", "best"), ("/elsewhere/vit.onnx", "vit.onnx"), ("{}/cache/train/a/vit.onnx", "a/vit.onnx")],
)
def test_an_exported_file_lies_among_the_results(tmp_path, file_name, place):
    (tmp_path / "best.ckpt").write_text("")
    cfg = config(tmp_path, checkpoint_url=f"{tmp_path}/best.ckpt", file_name=file_name.format(tmp_path))
    assert local_config(cfg).file_name == f"{tmp_path}/cache/train/{place}"


def test_archives_in_the_data_are_unpacked(tmp_path):
    images(tmp_path / "set")
    (tmp_path / "url").mkdir()
    with tarfile.open(tmp_path / "url/train.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "set/train", "train")
    cfg = config(tmp_path, data_url=f"{tmp_path}/url")
    assert Path(local_config(cfg).dataset_path, "train/cat/1.jpg").read_text() == "train/cat/1.jpg"


def test_an_archive_as_the_address_becomes_the_data_folder(tmp_path):
    images(tmp_path / "set")
    with tarfile.open(tmp_path / "imagenet.tar", "w") as tar:
        tar.add(tmp_path / "set", ".")
    cfg = config(tmp_path, data_url=f"file://{tmp_path}/imagenet.tar")
    for _ in range(2):
        assert Path(local_config(cfg).dataset_path, "val/cat/2.jpg").read_text() == "val/cat/2.jpg"


def test_a_file_that_is_no_archive_is_no_data(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UserError, match=r"data_url .*notes\.txt is a file; give a folder, or one of \.tar"):
        local_config(config(tmp_path, data_url=f"{tmp_path}/notes.txt"))


@pytest.mark.parametrize(
    "error", [RuntimeError("loss is nan"), UserError("bad"), KeyboardInterrupt(), SystemExit(3)]
)
def test_results_of_a_run_that_ends_badly_are_copied_out(tmp_path, error, caplog):
    def run(local):
        save(local)
        raise error

    with pytest.raises(type(error)) as raised:
        moxing_wrapper(run)(config(tmp_path, train_url=f"{tmp_path}/out"))
    assert raised.value is error
    assert (tmp_path / "out/run/last.ckpt").is_file()
    assert f"the run ended with {type(error).__name__}: {error}" in caplog.text


def test_a_failed_upload_makes_a_good_run_fail(tmp_path, moxing, monkeypatch):
    monkeypatch.setenv("COPY_FAILS", "cache/train")
    wanted = r"moxing cannot copy_parallel .*: obs answers 403 forbidden; the results are in .*/cache/train$"
    with pytest.raises(UserError, match=wanted):
        moxing_wrapper(save)(config(tmp_path, train_url="s3://b/out"))


def test_a_failed_upload_does_not_hide_why_the_run_failed(tmp_path, moxing, monkeypatch, caplog):
    monkeypatch.setenv("COPY_FAILS", "cache/train")

    def run(local):
        save(local)
        raise ZeroDivisionError("the cause")

    with pytest.raises(ZeroDivisionError, match="the cause"):
        moxing_wrapper(run)(config(tmp_path, train_url="s3://b/out"))
    assert "obs answers 403 forbidden" in caplog.text


def test_a_place_that_cannot_take_results_is_noticed_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot create the folder .*file/out: Not a directory"):
        moxing_wrapper(pytest.fail)(config(tmp_path, train_url=f"{tmp_path}/file/out"))


def test_an_upload_while_training_brings_what_is_there(tmp_path):
    cfg = config(tmp_path, train_url=f"{tmp_path}/out")

    def run(local):
        upload = uploader(local)
        save(local, "1.ckpt")
        upload()
        assert [path.name for path in (tmp_path / "out/run").iterdir()] == ["1.ckpt"]
        save(local, "2.ckpt")

    moxing_wrapper(run)(cfg)
    assert {path.name for path in (tmp_path / "out/run").iterdir()} == {"1.ckpt", "2.ckpt"}


def test_a_failed_upload_while_training_is_a_warning(tmp_path, moxing, monkeypatch, caplog):
    monkeypatch.setenv("COPY_FAILS", "cache/train")
    cfg = config(tmp_path, train_url="s3://b/out", save_checkpoint_path=str(tmp_path / "cache/train"))
    save(cfg)
    uploader(cfg)()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "403 forbidden" in caplog.text


@pytest.mark.parametrize(
    ("rank", "number", "environ", "place"),
    [
        (0, 8, {}, "out/run"),
        (1, 8, {}, None),
        (0, 16, {"DEVICE_NUM": 8}, "out/run"),
        (8, 16, {"DEVICE_NUM": 8}, "out/machine_1/run"),
        (9, 16, {"DEVICE_NUM": 8}, None),
        (4, 8, {"MA_NUM_HOSTS": 2}, "out/machine_1/run"),
        (0, 8, {"MS_ROLE": "MS_SCHED"}, None),
    ],
)
def test_one_rank_of_each_machine_copies_results(tmp_path, monkeypatch, rank, number, environ, place):
    become_rank(monkeypatch, rank, number, **environ)
    moxing_wrapper(save)(config(tmp_path, train_url=f"{tmp_path}/out"))
    found = [path.parent.relative_to(tmp_path) for path in (tmp_path / "out").rglob("last.ckpt")]
    assert found == ([Path(place)] if place else [])


def test_sigterm_is_the_caller_s_own_again_after_the_run(tmp_path):
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    local_config(config(tmp_path))
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_DFL


def test_it_works_outside_of_the_main_thread(tmp_path):
    thread = threading.Thread(
        target=moxing_wrapper(save), args=[config(tmp_path, train_url=f"{tmp_path}/out")]
    )
    thread.start()
    thread.join()
    assert (tmp_path / "out/run/last.ckpt").is_file()


def test_a_job_that_is_stopped_copies_its_results_out(tmp_path):
    images(tmp_path / "set")
    environ = {**write_moxing(tmp_path), "SIGTERM_TO": "0"}
    ranks = Ranks(
        tmp_path, config(tmp_path, data_url=f"{tmp_path}/set", train_url=f"{tmp_path}/out"), environ
    )
    ranks.start(0, 1)
    assert ranks.ends() == [(143, "")]
    assert (tmp_path / "out/rank_0").read_text() == "train/cat/1.jpg val/cat/2.jpg"


def in_the_cloud(tmp_path, **environ):
    """Ranks whose data is in a bucket, and the environment of the stand-in."""
    moxing = write_moxing(tmp_path)
    images(tmp_path / "buckets/b/data")
    cfg = config(tmp_path, data_url="s3://b/data", train_url="s3://b/out")
    return Ranks(tmp_path, cfg, {**moxing, **environ}), moxing


@pytest.mark.parametrize("job", [{}, {"JOB_ID": "7"}])
def test_one_rank_copies_and_all_have_the_data(tmp_path, job):
    ranks, moxing = in_the_cloud(tmp_path, COPY_SECONDS="0.3", RUN_SECONDS="2", **job)
    for rank in range(3):
        ranks.start(rank, 3)
    assert ranks.ends() == [(0, "")] * 3
    assert [call.split()[1] for call in calls(moxing)] == ["s3://b/data", f"{tmp_path}/cache/train"]
    for rank in range(3):
        assert (tmp_path / f"cache/train/rank_{rank}").read_text() == "train/cat/1.jpg val/cat/2.jpg"
    assert (tmp_path / "buckets/b/out/rank_0").is_file()


def test_a_failed_copy_ends_all_ranks_even_late_ones(tmp_path):
    ranks, moxing = in_the_cloud(tmp_path, COPY_FAILS="b/data")
    ranks.start(0, 3)
    ranks.wait_for_marker("failed")
    ranks.start(1, 3)
    time.sleep(0.5)
    ranks.start(2, 3)
    ends = ranks.ends()
    reason = f"moxing cannot copy_parallel s3://b/data to {tmp_path}/cache/data: obs answers 403 forbidden"
    other = f"error: another process of this machine could not copy: {reason}"
    assert ends == [(1, f"error: {reason}"), (1, other), (1, other)]
    assert len(calls(moxing)) == 1


@pytest.mark.parametrize(
    ("signum", "code", "text"),
    [
        (signal.SIGKILL, -9, "process 0 died while it copied"),
        (signal.SIGTERM, 143, "could not copy: it was stopped"),
    ],
)
def test_the_end_of_the_rank_that_copies_ends_the_others_at_once(tmp_path, signum, code, text):
    ranks, _ = in_the_cloud(tmp_path, COPY_SECONDS="60")
    copier = ranks.start(0, 3)
    ranks.wait_for_marker("begun 0")
    ranks.start(1, 3)
    ranks.start(2, 3)
    ranks.wait_until_all_are_there()
    copier.send_signal(signum)
    killed = time.monotonic()
    ends = ranks.ends()
    assert time.monotonic() - killed < 5
    assert [code for code, _ in ends] == [code, 1, 1]
    assert all(text in line for _, line in ends[1:])


def test_the_mark_of_a_killed_job_is_not_taken_for_this_one(tmp_path):
    """ModelArts restarts a job in place, with the number it had."""
    ranks, _ = in_the_cloud(tmp_path, JOB_ID="7")
    killed = ranks.start(0, 1, COPY_SECONDS="60")
    ranks.wait_for_marker("begun 0")
    killed.kill()
    assert ranks.ends() == [(-signal.SIGKILL, "")]
    ranks.wait_for_marker("begun 0")
    ranks.processes.clear()
    for rank in range(2):
        ranks.start(rank, 2)
    assert ranks.ends() == [(0, ""), (0, "")]
    assert (tmp_path / "cache/train/rank_1").read_text() == "train/cat/1.jpg val/cat/2.jpg"


def test_ranks_do_not_wait_for_ever(tmp_path):
    ranks, _ = in_the_cloud(tmp_path)
    ranks.cfg["copy_minutes"] = 0.002
    ranks.start(0, 2, COPY_SECONDS="1")
    ranks.wait_for_marker("begun 0")
    ranks.start(1, 2)
    assert ranks.ends() == [
        (0, ""),
        (1, "error: another process of this machine still copies after 0.002 minutes; raise copy_minutes"),
    ]


def test_jobs_of_different_numbers_copy_each_for_itself(tmp_path):
    ranks, moxing = in_the_cloud(tmp_path, COPY_SECONDS="0.5")
    for job in "12":
        ranks.start(0, 1, JOB_ID=job)
    assert ranks.ends() == [(0, ""), (0, "")]
    assert sum(call.startswith("copy_parallel s3://b/data") for call in calls(moxing)) == 2


def test_the_scheduler_of_msrun_waits_for_the_data_too(tmp_path):
    ranks, moxing = in_the_cloud(tmp_path, COPY_SECONDS="0.3", RUN_SECONDS="2")
    ranks.start(0, 1, MS_ROLE="MS_SCHED")
    ranks.wait_for_marker("begun scheduler")
    ranks.start(0, 1, MS_ROLE="MS_WORKER")
    assert ranks.ends() == [(0, ""), (0, "")]
    assert len(calls(moxing)) == 2
