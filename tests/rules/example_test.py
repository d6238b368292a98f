#!/usr/bin/env python3
"""tests/rules/example_test.py: an example prints what the comment at its end says.

  example_test.py SOURCE PROGRAM [ARGUMENT ...]

The comment starts with the line `// Prints:`; each further line is one line of output after `//   `."""
import pathlib
import subprocess
import sys

if len(sys.argv) < 3:
    sys.exit(__doc__)
source, *program = sys.argv[1:]
_, found, comment = pathlib.Path(source).read_text(encoding="utf-8").partition("\n// Prints:\n")
if not found:
    sys.exit(f"{source} does not end in a comment `// Prints:`")
stated = "".join(line.removeprefix("//").removeprefix("   ") for line in comment.splitlines(keepends=True))
printed = subprocess.run(program, check=True, capture_output=True, text=True).stdout
if printed != stated:
    sys.exit(f"{source} says that it prints\n{stated}and it prints\n{printed}")
