"""What every test starts from."""

import logging
import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def user_cache_of_the_tests(tmp_path_factory):
    """Compiled operators and graphs are made anew by each run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def hangup_is_heard():
    """The programs that are tested inherit no ignored SIGHUP, as they would from tests under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(autouse=True)
def project_log():
    """A command-line script, in a test or a fixture, sets up the log of `src`; each test begins without."""
    _reset()
    yield
    _reset()


def _reset():
    logger = logging.getLogger("src")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True
