"""Runs one test or a whole suite of CPython's and writes a line `TEST RESULT` for each test as soon as it has ended.

cpython_suite.py NAME FILE, where NAME is a suite (test_socket) or a test's full name. Unlike `python -m test`, the results
before a crash or a time limit are kept.
"""

import importlib
import sys
import unittest

import test.support

name, path = sys.argv[1], sys.argv[2]
test.support.verbose = 1
suite_name = name.split(".")[1] if name.startswith("test.") else name.split(".")[0]
# test_socketserver asks for the network and uses loopback only; the others would look for hosts of the Internet.
test.support.use_resources = ["network"] if suite_name == "test_socketserver" else []
# Some virtual machines' VSOCK never answers. It is not TCP.
LEFT_OUT = ("VSOCK",)


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.file = open(path, "a", buffering=1)
        self.verdict = None

    def startTest(self, case):
        self.verdict = "ok"
        super().startTest(case)

    def stopTest(self, case):
        self.write(case.id(), self.verdict)
        super().stopTest(case)

    def write(self, test, verdict):
        print(test.replace(" ", "_"), verdict, file=self.file)

    def addError(self, case, error):
        self.verdict = "error"
        super().addError(case, error)
        if not isinstance(case, unittest.TestCase):
            self.write(case.id(), "error")

    def addFailure(self, case, error):
        self.verdict = "failure"
        super().addFailure(case, error)

    def addSkip(self, case, reason):
        if self.verdict == "ok":
            self.verdict = "skipped"
        super().addSkip(case, reason)
        if not isinstance(case, unittest.TestCase):
            self.write(case.id(), "skipped")

    def addExpectedFailure(self, case, error):
        self.verdict = "expected-failure"
        super().addExpectedFailure(case, error)

    def addUnexpectedSuccess(self, case):
        self.verdict = "unexpected-success"
        super().addUnexpectedSuccess(case)

    def addSubTest(self, case, subtest, error):
        if error is not None:
            self.verdict = "failure" if issubclass(error[0], case.failureException) else "error"
        super().addSubTest(case, subtest, error)




def without(suite):
    """The tests of the suite but those that are left out."""
    kept = unittest.TestSuite()
    for case in suite:
        if isinstance(case, unittest.TestSuite):
            kept.addTest(without(case))
        elif not any(part in case.id() for part in LEFT_OUT):
            kept.addTest(case)
    return kept


loader = unittest.TestLoader()
if name == suite_name:
    tests = without(loader.loadTestsFromModule(importlib.import_module("test." + name)))
else:
    tests = loader.loadTestsFromName(name)
outcome = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result).run(tests)
sys.exit(not outcome.wasSuccessful())
