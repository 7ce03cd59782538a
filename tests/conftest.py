"""What every test starts from."""

import logging

import pytest


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
