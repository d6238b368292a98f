#!/usr/bin/env python3
# tools/make_tour.py: runs the commands of docs/tour.md and writes what they print below them.
"""Usage: tools/make_tour.py PROGRAM [PAGE]

The page (docs/tour.md) is its own template: its text and its commands are written there, by hand. In a block marked
`console`, a line that begins with "$ " is a command; it goes on where it ends in a backslash. What follows up to the
next command is what it prints, and this program replaces that. All commands run in turn in one folder that is empty at
the beginning, with PROGRAM as `qkv`. A command that fails ends the program with exit code 1, and the page stays as it
was.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs/tour.md"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "


class Failure(Exception):
    pass


def commands_of(block: str) -> list[str]:
    """The commands of a block, each as it is written, without the prompt."""
    commands, lines = [], iter(block.splitlines())
    for line in lines:
        if not line.startswith(PROMPT):
            continue
        command = line.removeprefix(PROMPT)
        while command.endswith("\\"):
            command += "\n" + next(lines, "")
        commands.append(command)
    return commands


class Session:
    """A folder in which commands run, and `qkv` is a program."""

    def __init__(self, program: Path, folder: Path):
        self.folder = folder / "here"
        self.folder.mkdir()
        names = folder / "bin"
        names.mkdir()
        (names / "qkv").symlink_to(program.resolve())
        self.environment = {**os.environ, "PATH": f"{names}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "NO_COLOR": "1"}

    def run(self, command: str) -> str:
        result = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
        )
        if result.returncode != 0:
            raise Failure(f"exit code {result.returncode} of: {command}\n{result.stdout}")
        return result.stdout


def with_output(page: str, program: Path) -> str:
    """The page, with what its commands print now."""
    with tempfile.TemporaryDirectory() as folder:
        session = Session(program, Path(folder))

        def run_block(match: re.Match) -> str:
            block = "".join(f"{PROMPT}{command}\n{session.run(command)}" for command in commands_of(match.group(1)))
            return f"```console\n{block}```"

        return BLOCK.sub(run_block, page)


def main() -> int:
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    path = Path(sys.argv[2]) if len(sys.argv) == 3 else PAGE
    try:
        page = with_output(path.read_text(encoding="utf-8"), Path(sys.argv[1]))
        path.write_text(page, encoding="utf-8")
    except (Failure, OSError) as failure:
        print(f"make_tour: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
