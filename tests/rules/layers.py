#!/usr/bin/env python3
"""tests/rules/layers.py: checks that the folders of a tree are layers.

  layers.py ROOT

A folder of src/ includes itself and the folders before it in LAYERS, never a later one. A header of include/qkv/
belongs to the layer that HEADERS names. Front ends (apps/, examples/) see include/qkv/ only; apps/ may also call
bench/run.h. Prints one line per violation; exit code 1 if there is one."""
import pathlib
import re
import sys

# Lower layers first. Layers in one group are neighbours: neither includes the other.
LAYERS = [["base"], ["kernels"], ["tensor"], ["io"], ["attention"], ["autograd"], ["ops"], ["optim"], ["nn"], ["text"],
          ["plot"], ["seq2seq", "database"], ["mpi"]]
HEIGHT = {layer: height for height, group in enumerate(LAYERS) for layer in group}

HEADERS = {
    "attend.h": "attention",
    "attend_backward.h": "attention",
    "attend_jvp.h": "attention",
    "attend_op.h": "ops",
    "autograd.h": "autograd",
    "cache.h": "attention",
    "dtype.h": "tensor",
    "error.h": "base",
    "export.h": "base",
    "gemm.h": "tensor",
    "io.h": "io",
    "isa.h": "kernels",
    "mask.h": "attention",
    "masked_softmax.h": "attention",
    "merge.h": "attention",
    "nn.h": "nn",
    "ops.h": "ops",
    "optim.h": "optim",
    "plot.h": "plot",
    "prepared.h": "attention",
    "score.h": "attention",
    "tensor.h": "tensor",
    "threads.h": "base",
    "version.h": "base",
    "weigh.h": "attention",
}
UMBRELLA = "qkv.h"  # includes every public header; only front ends and tests include it
MARKS = "export.h"  # the exception: it holds nothing that a user calls

# Folders of other libraries' headers, and who may include from them. The core needs Highway and nothing else.
OTHERS = {"hwy": {"base", "kernels"}, "CLI": {"apps"}, "nlohmann": {"apps"}}
SYSTEM = {"sys", "linux"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE)
SUFFIXES = {".h", ".cpp"}


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES) if folder.is_dir() else []


def includes(path):
    """(line number, "<" or '"', what is included) of every include in a file."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in INCLUDE.finditer(text)]


def may_include(layer, other):
    return layer == other or HEIGHT[other] < HEIGHT[layer]


def check_other_library(owner, included):
    """What is wrong with including a header that is not qkv's."""
    folder = included.split("/")[0] if "/" in included else None
    if folder is None or folder in SYSTEM or owner in OTHERS.get(folder, ()):
        return None
    return f"{owner} may not include <{included}>" if folder in OTHERS else f"<{included}> is in no library we know"


def check_layer(root, layer, bracket, included):
    """What is wrong with one include in a file of a layer."""
    if included.startswith("qkv/"):
        name = included.removeprefix("qkv/")
        if name == UMBRELLA:
            return f"<qkv/{UMBRELLA}> is for users; include the headers that are needed"
        if name not in HEADERS:
            return f"<{included}> has no layer: name it in HEADERS of tests/rules/layers.py"
        other = HEADERS[name]
    elif (root / "src" / included).is_file():
        other = included.split("/")[0]
        if other not in HEIGHT:
            return f'"{included}" is in no layer'
    elif bracket == '"':
        return f'"{included}" is not in src/ (paths start there; other libraries are included with <>)'
    else:
        return check_other_library(layer, included)
    return None if may_include(layer, other) else f"{layer} may not include {other} (it is above or beside): {included}"


def check_public_header(root, path, bracket, included):
    if bracket == '"' or ("/" in included and not included.startswith("qkv/")):
        return f"a public header includes the C++ library and <qkv/...> only, not {included}"
    if path.name == UMBRELLA:
        return None
    return check_layer(root, HEADERS[path.name], bracket, included)


def check_front_end(root, path, bracket, included):
    owner = path.relative_to(root).parts[0]
    if bracket == "<":
        return None if included.startswith("qkv/") else check_other_library(owner, included)
    beside = (path.parent / included).resolve()
    if beside.is_file() and beside.is_relative_to((root / owner).resolve()):
        return None
    if owner == "apps" and (included == "bench/run.h" or (root / included).is_file() and included.startswith("apps/")):
        return None
    return f'{owner} sees include/qkv/ only, not "{included}"'


def violations(root):
    """One line of text per violation in the tree."""
    root = pathlib.Path(root)
    found = []

    def report(path, line, what):
        if what is not None:
            found.append(f"{path.relative_to(root)}:{line}: {what}")

    for path in source_files(root / "src"):
        layer = path.relative_to(root / "src").parts[0]
        if layer not in HEIGHT:
            report(path, 1, f"src/{layer} is in no layer: name it in LAYERS of tests/rules/layers.py")
            continue
        for line, bracket, included in includes(path):
            report(path, line, check_layer(root, layer, bracket, included))
    public = source_files(root / "include")
    for path in public:
        if path.name != UMBRELLA and path.name not in HEADERS:
            report(path, 1, "this header has no layer: name it in HEADERS of tests/rules/layers.py")
            continue
        for line, bracket, included in includes(path):
            report(path, line, check_public_header(root, path, bracket, included))
        if path.name == UMBRELLA:
            seen = {included for _, _, included in includes(path)}
            for other in public:
                if other.name not in (UMBRELLA, MARKS) and f"qkv/{other.name}" not in seen:
                    report(path, 1, f"does not include <qkv/{other.name}>")
    for path in source_files(root / "apps") + source_files(root / "examples"):
        for line, bracket, included in includes(path):
            report(path, line, check_front_end(root, path, bracket, included))
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = violations(sys.argv[1])
    print("\n".join(lines))
    sys.exit(1 if lines else 0)
