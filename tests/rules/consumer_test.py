#!/usr/bin/env python3
"""tests/rules/consumer_test.py: another project builds against the installed package, found by CMake and by pkg-config.

  consumer_test.py PREFIX CMAKE NINJA COMPILER VERSION"""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import installed

PREFIX, CMAKE, NINJA, COMPILER, VERSION = sys.argv[1:] if len(sys.argv) == 6 else sys.exit(__doc__)
CONSUMER = pathlib.Path(__file__).resolve().parents[1] / "consumer"


class Consumer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def configure(self, source):
        # Highway is inside the library; a consumer that looked for it would need its headers for nothing.
        return installed.run(CMAKE, "-G", "Ninja", "-S", source, "-B", self.folder / "build",
                             f"-DCMAKE_MAKE_PROGRAM={NINJA}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                             f"-DCMAKE_PREFIX_PATH={PREFIX}", "-DCMAKE_DISABLE_FIND_PACKAGE_hwy=ON")

    def test_find_package_gives_a_target_to_link(self):
        self.configure(CONSUMER)
        installed.run(CMAKE, "--build", self.folder / "build")
        self.assertEqual(installed.run(self.folder / "build/my_program"), f"qkv {VERSION}: fine\n")

    def test_find_package_refuses_another_minor_version(self):
        source = self.folder / "asks_for_another"
        source.mkdir()
        text = (CONSUMER / "CMakeLists.txt").read_text()
        self.assertIn("find_package(qkv 0.1 ", text)
        (source / "CMakeLists.txt").write_text(text.replace("find_package(qkv 0.1 ", "find_package(qkv 0.99 "))
        with self.assertRaisesRegex(AssertionError, "0.99"):
            self.configure(source)

    def test_pkg_config_gives_the_flags(self):
        self.assertEqual(installed.pkg_config(PREFIX, "--modversion"), [VERSION])
        output = installed.compile_and_run(COMPILER, PREFIX, CONSUMER / "main.cpp", self.folder / "program")
        self.assertEqual(output, f"qkv {VERSION}: fine\n")

    def test_only_public_headers_are_installed(self):
        root = CONSUMER.parents[1]
        wanted = {str(path.relative_to(root / "include")) for path in (root / "include").rglob("*.h")}
        include = pathlib.Path(PREFIX, "include")
        self.assertEqual({str(path.relative_to(include)) for path in include.rglob("*") if path.is_file()}, wanted)

    def test_the_installed_command_runs(self):
        self.assertIn(VERSION, installed.run(pathlib.Path(PREFIX, "bin/qkv"), "--version"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
