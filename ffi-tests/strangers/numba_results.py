"""Runs Numba's tests of its driver layer by unittest, as Numba does, and writes the result of each: numba_results.py FILE."""

import json
import sys
import unittest

import pytest

PACKAGE = "numba.cuda.tests.cudadrv"


class Recorded(unittest.TextTestResult):
    """A test has failed if one of its parts has."""

    results: dict[str, str] = {}

    def record(self, test, result):
        name = test.id().removeprefix(f"{PACKAGE}.")
        if self.results.get(name) != "FAILED":
            self.results[name] = result

    def addSuccess(self, test):
        super().addSuccess(test)
        self.record(test, "ok")

    def addError(self, test, err):
        # Some tests skip themselves by pytest, which Numba's developers run them with.
        if issubclass(err[0], pytest.skip.Exception):
            return self.addSkip(test, str(err[1]))
        super().addError(test, err)
        self.record(test, "FAILED")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.record(test, "FAILED")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        self.record(test, "FAILED" if err else "ok")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.record(test, "ignored")

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.record(test, "ignored")

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.record(test, "FAILED")


# Some tests start other processes, which import this file.
if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromName(PACKAGE)
    unittest.TextTestRunner(resultclass=Recorded).run(tests)
    with open(sys.argv[1], "w") as file:
        json.dump(Recorded.results, file)
