"""Runs the tests that the official Python client carries, unmodified, against the cluster that KUBECONFIG names.

They expect one module that is not published with them: the place where they learn how to reach a cluster. It is made
here, and nothing else is. Prints `passed NAME` or `failed NAME` for each test; which of them should pass is for the
caller to know, who has a real cluster to compare with.
"""

import sys
import types
import unittest

from kubernetes import client, config


def get_e2e_configuration():
    """The cluster of KUBECONFIG, as the tests ask for it."""
    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    return configuration


def names_of(suite):
    """Every test of a suite, before it runs: suites forget their tests."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from names_of(test)
        else:
            yield test.id()


def main() -> int:
    base = types.ModuleType("kubernetes.e2e_test.base")
    base.get_e2e_configuration = get_e2e_configuration
    package = types.ModuleType("kubernetes.e2e_test")
    package.base = base
    sys.modules["kubernetes.e2e_test"] = package
    sys.modules["kubernetes.e2e_test.base"] = base
    names = ["kubernetes.dynamic.test_client", "kubernetes.dynamic.test_discovery"]
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    tests = sorted(names_of(suite))
    outcome = unittest.TextTestRunner(verbosity=0).run(suite)
    unhappy = {test.id() for test, _ in outcome.failures + outcome.errors}
    for name in tests:
        print("failed" if name in unhappy else "passed", name)
    return 0 if outcome.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
