#!/usr/bin/env python3
"""tests/rules/layers_test.py: layers hold in this repository, and the checker sees it when they do not."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import layers

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Layers(unittest.TestCase):
    def violations_of(self, files):
        """The violations in a tree of these files: {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return layers.violations(folder)

    def refused(self, files, *parts):
        """Expects one violation, whose text holds all parts."""
        found = self.violations_of(files)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_layers_hold_in_this_repository(self):
        self.assertEqual(layers.violations(ROOT), [])

    def test_this_repository_has_something_to_check(self):
        self.assertGreater(len(layers.source_files(ROOT / "src")), 10)
        self.assertGreater(len(layers.source_files(ROOT / "include")), 10)

    def test_a_lower_layer_and_its_own_are_fine(self):
        self.assertEqual(self.violations_of({
            "src/base/a.h": "#include <vector>\n#include <sys/mman.h>\n",
            "src/tensor/b.h": "",
            "src/tensor/b.cpp": '#include "tensor/b.h"\n#include "base/a.h"\n#include <qkv/error.h>\n',
            "src/kernels/c.cpp": "#include <hwy/highway.h>\n",
        }), [])

    def test_a_higher_layer_is_refused_with_file_and_line(self):
        self.refused({"src/attention/a.h": "", "src/tensor/b.cpp": '\n  #  include "attention/a.h"\n'},
                     "src/tensor/b.cpp:2:", "tensor may not include attention")

    def test_a_public_header_of_a_higher_layer_is_refused(self):
        self.refused({"src/base/a.cpp": "#include <qkv/tensor.h>\n"}, "base may not include tensor")
        self.refused({"include/qkv/error.h": "#include <qkv/attend.h>\n"}, "base may not include attention")

    def test_neighbours_do_not_include_each_other(self):
        self.refused({"src/database/a.h": "", "src/seq2seq/b.cpp": '#include "database/a.h"\n'},
                     "seq2seq may not include database")
        self.refused({"src/seq2seq/a.h": "", "src/database/b.cpp": '#include "seq2seq/a.h"\n'},
                     "database may not include seq2seq")

    def test_a_folder_without_a_layer_is_refused(self):
        self.refused({"src/utils/a.h": ""}, "src/utils is in no layer")
        self.refused({"src/a.cpp": ""}, "src/a.cpp is in no layer")

    def test_a_public_header_without_a_layer_is_refused(self):
        self.refused({"include/qkv/new.h": ""}, "include/qkv/new.h:1:", "has no layer")

    def test_the_library_does_not_look_outside_itself(self):
        self.refused({"src/base/a.cpp": '#include "../../tests/b.h"\n', "tests/b.h": ""}, "is not in src/")
        self.refused({"src/base/a.cpp": '#include "bench/run.h"\n', "bench/run.h": ""}, "is not in src/")
        self.refused({"src/base/a.cpp": '#include "b.h"\n', "src/base/b.h": ""}, "is not in src/")
        self.refused({"src/attention/a.cpp": "#include <qkv/qkv.h>\n"}, "is for users")

    def test_another_library_is_included_where_it_belongs(self):
        self.refused({"src/attention/a.cpp": "#include <hwy/highway.h>\n"}, "attention may not include <hwy/highway.h>")
        self.refused({"src/base/a.cpp": "#include <boost/any.hpp>\n"}, "in no library we know")

    def test_a_public_header_shows_no_other_library(self):
        self.refused({"include/qkv/isa.h": "#include <hwy/targets.h>\n"}, "public header")
        self.refused({"include/qkv/isa.h": '#include "kernels/isa.h"\n', "src/kernels/isa.h": ""}, "public header")

    def test_the_umbrella_includes_every_public_header(self):
        self.refused({"include/qkv/qkv.h": "#include <qkv/error.h>\n", "include/qkv/error.h": "",
                      "include/qkv/threads.h": ""}, "does not include <qkv/threads.h>")

    def test_front_ends_see_the_public_headers_only(self):
        self.assertEqual(self.violations_of({
            "apps/main.cpp": '#include <CLI/CLI.hpp>\n#include <qkv/qkv.h>\n#include "a.h"\n#include "bench/run.h"\n',
            "apps/a.h": "",
            "bench/run.h": "",
        }), [])
        self.refused({"apps/main.cpp": '#include "base/message.h"\n', "src/base/message.h": ""}, "apps sees include/qkv/")
        self.refused({"apps/main.cpp": '#include "../src/base/message.h"\n', "src/base/message.h": ""}, "apps sees")
        self.refused({"apps/main.cpp": '#include "bench/cases.h"\n', "bench/cases.h": ""}, "apps sees include/qkv/")
        self.refused({"examples/a.cpp": '#include "bench/run.h"\n', "bench/run.h": ""}, "examples sees include/qkv/")


if __name__ == "__main__":
    unittest.main()
