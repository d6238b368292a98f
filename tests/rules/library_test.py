#!/usr/bin/env python3
"""tests/rules/library_test.py: the built library never prints or ends the program, and shows only its own names.

  library_test.py LIBRARY COMPILER asserts|no_asserts"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import symbols

LIBRARY, COMPILER, ASSERTS = sys.argv[1:4] if len(sys.argv) == 4 else sys.exit(__doc__)
asserts = {"asserts": True, "no_asserts": False}[ASSERTS]


class TheLibrary(unittest.TestCase):
    def test_it_never_prints(self):
        self.assertEqual(symbols.printing(LIBRARY), [])

    def test_it_never_ends_the_program_but_by_a_failed_assert(self):
        self.assertEqual(symbols.ending(LIBRARY, asserts), [])

    def test_it_shows_only_names_of_namespace_qkv(self):
        self.assertEqual(symbols.foreign(LIBRARY), [])
        self.assertGreater(len(symbols.shown(LIBRARY)), 20)

    @unittest.skipIf("clang" in COMPILER, "the size is that of g++, which releases are built with")
    def test_stripped_it_is_smaller_than_2_megabytes(self):
        with tempfile.TemporaryDirectory() as folder:
            stripped = pathlib.Path(folder, "stripped.so")
            subprocess.run(["strip", "-o", stripped, LIBRARY], check=True)
            self.assertLess(stripped.stat().st_size, 2_000_000)


class TheCheck(unittest.TestCase):
    """The checks above see what they must: small libraries that break one rule each."""

    def build(self, source):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        library = pathlib.Path(folder.name, "bad.so")
        subprocess.run([COMPILER, "-std=c++20", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-x", "c++", "-", "-o",
                        library], input=source, text=True, check=True)
        return library

    def in_qkv(self, statement, header):
        visible = '__attribute__((visibility("default")))'
        return self.build(f"#include <{header}>\nnamespace qkv {{ {visible} void run(int x) {{ (void)x; {statement} }} }}\n")

    def test_a_good_library_passes(self):
        library = self.in_qkv("", "cstddef")
        self.assertEqual((symbols.printing(library), symbols.ending(library, False), symbols.foreign(library)), ([], [], []))
        self.assertEqual(symbols.shown(library), ["_ZN3qkv3runEi"])

    def test_printing_is_seen(self):
        for header, statement in [("cstdio", 'std::printf("%d", x);'), ("cstdio", 'std::puts("x");'),
                                  ("cstdio", 'std::fprintf(stderr, "%d", x);'), ("cstdio", "std::putchar(x);"),
                                  ("iostream", "std::cout << x;"), ("iostream", "std::cerr << x;")]:
            self.assertNotEqual(symbols.printing(self.in_qkv(statement, header)), [], statement)

    def test_ending_the_program_is_seen(self):
        for statement in ["std::abort();", "std::exit(x);", "std::_Exit(x);", "std::quick_exit(x);"]:
            self.assertNotEqual(symbols.ending(self.in_qkv(statement, "cstdlib"), True), [], statement)

    def test_an_assert_is_seen_where_there_should_be_none(self):
        library = self.in_qkv("assert(x);", "cassert")
        self.assertEqual(symbols.ending(library, asserts=False), ["__assert_fail"])
        self.assertEqual(symbols.ending(library, asserts=True), [])

    def test_a_name_outside_of_the_namespace_is_seen(self):
        library = self.build('extern "C" __attribute__((visibility("default"))) int helper() { return 1; }\n')
        self.assertEqual(symbols.foreign(library), ["helper"])
        library = self.build('#include <vector>\n__attribute__((visibility("default"))) void f(std::vector<int>& v) {'
                             " v.push_back(1); }\n")
        self.assertIn("_Z1fRSt6vectorIiSaIiEE", symbols.foreign(library))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
