"""Runs a module of CPython's own tests."""

import collections
import os
import sys
import unittest

from toolhost import plugin, tool

plugin("cpython-tests", description="Runs CPython's own tests.")


class Result(unittest.TestResult):
    """Counts tests, and notes by name what failed, with the last line of why."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.bad = {}

    def addSuccess(self, test):
        self.passed += 1

    def addExpectedFailure(self, test, err):
        self.passed += 1

    def addFailure(self, test, err):
        self.bad[test.id()] = f"{err[0].__name__}: {err[1]}"

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(test, err)

    def addUnexpectedSuccess(self, test):
        self.bad[test.id()] = "expected to fail, and does not"


def without(suite, names):
    """Yields the tests of a suite, but those of these names."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from without(test, names)
        elif test.id() not in names:
            yield test


@tool
def run(module: str, leave: list[str] = []) -> dict:
    """Runs a module of the package test, in the manner of its regrtest.

    Args:
        leave: the names of tests that are not run
    """
    sys.path.append("/lib")
    os.chdir("/tmp")

    from test import support

    support.use_resources = {}  # no network, no large files: what regrtest does by itself
    result = Result()
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName("test." + module)
    except unittest.SkipTest as e:
        result.addSkip(None, str(e))
    else:
        unittest.TestSuite(without(suite, set(leave))).run(result)
    return {"run": result.testsRun, "passed": result.passed, "skipped": collections.Counter(why for _, why in result.skipped), "failed": result.bad}
