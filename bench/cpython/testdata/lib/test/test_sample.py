"""Tests of every outcome."""

import os
import unittest

from test import support


class Sample(unittest.TestCase):
    def test_passes(self):
        self.assertEqual(support.use_resources, {})

    def test_fails(self):
        self.assertEqual(1, 2)

    def test_breaks(self):
        raise OSError("broken")

    def test_fails_in_part(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(i, 1)

    def test_temporary_file(self):
        with open("file", "w") as f:
            f.write("x")

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass

    @unittest.skip("not today")
    def test_skipped(self):
        pass

    def test_ends_program(self):
        os._exit(3)


class Broken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no class")

    def test_never(self):
        pass
