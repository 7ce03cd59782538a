"""What every test starts from."""

import logging

import pytest


@pytest.fixture(autouse=True)
def project_log():
    """A command-line script sets up the log of `src`; the next test finds it as it was."""
    logger = logging.getLogger("src")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield
    for handler in set(logger.handlers) - set(before[0]):
        handler.close()
    logger.handlers, logger.level, logger.propagate = before
