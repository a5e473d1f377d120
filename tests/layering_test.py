#!/usr/bin/env python3
"""Checks the dependency rule of docs/design.md and a few house rules on every source file. `layering_test.py ROOT [BUILD...]`

A folder under src/ includes what ALLOWED says, and itself. Backends of one kind never include each other. Only comm/ knows everything.
Long files are reported, but are no failure.
"""
import pathlib
import re
import sys
import tempfile

# Who may include whom. A backend's folder has its parent's row, may include its parent's own headers, and nothing of its siblings.
ALLOWED = {
    "base": set(),
    "vgpu": set(),
    "device": {"base"},
    "model": {"base"},
    "bootstrap": {"base", "model"},
    "algorithm": {"model"},
    "tuning": {"base", "model", "algorithm"},  # reads the table: which algorithms there are
    "transport": {"base", "device", "model"},
    "executor": {"base", "device", "model", "algorithm", "transport"},
    "diagnostics": {"base", "model", "bootstrap"},
    "comm": {
        "base", "device", "model", "bootstrap", "algorithm", "tuning", "transport", "executor", "diagnostics",
    },
    "api": {"comm", "base", "model"},
}
# An algorithm is arithmetic over primitives: it knows no CUDA API, no socket, no thread.
ALGORITHM_FORBIDDEN = re.compile(
    r"^(cuda.*|sys/.*|netinet/.*|arpa/.*|pthread\.h|unistd\.h|poll\.h|thread|mutex|shared_mutex|condition_variable|future|atomic|semaphore"
    r"|latch|barrier|stop_token|chrono)$"
)
SOURCE_SUFFIXES = {".h", ".c", ".cc", ".cu", ".cuh"}
CHECKED_FOLDERS = ["src", "include", "tools", "tests", "bench", "examples"]
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".cmake", ".txt", ".py", ".sh", ".md", ".json", ".in", ".yml", ".def", ".map", ""}
# Paths of one developer's machine: none belongs into the repository. (Written so that this file does not match itself.)
PRIVATE_PATHS = re.compile(r"(?<![\w.$}])/(?:work|root|home)/[\w.]")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', re.MULTILINE)
SOFT_LINES = 400


def room_of(path, src):
    """The folder that a file under src/ belongs to, as ALLOWED counts: backends (executor/cpu) are folders of their own."""
    parts = path.relative_to(src).parts[:-1]
    if parts[:1] == ("vgpu",):
        return "vgpu"
    return "/".join(parts[:2])


def may_include(includer, included):
    """Whether a file in the folder `includer` may include a header of the folder `included`."""
    if includer == included:
        return True
    top, other = includer.split("/")[0], included.split("/")[0]
    if top == other:
        return "/" not in included and "/" in includer  # a backend sees its interface, nobody a backend
    if top != "comm" and "/" in included:
        return False  # backends are reached through their interface, the headers in their parent's folder
    return other in ALLOWED.get(includer, ALLOWED.get(top, set()))


def check_cycles(graph, say):
    """Reports each cycle of a graph {node: nodes} once."""
    state = {}

    def visit(node, trail):
        state[node] = "open"
        for target in sorted(graph.get(node, ())):
            if state.get(target) == "open":
                say("includes go round: " + " -> ".join([*trail[trail.index(target):], target]))
            elif target not in state:
                visit(target, [*trail, target])
        state[node] = "done"

    for node in sorted(graph):
        if node not in state:
            visit(node, [node])


def check_source(path, root, say):
    """House rules of one source file; returns the headers under src/ that it includes."""
    src = root / "src"
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(root)
    ours = []
    in_src = path.is_relative_to(src)
    room = room_of(path, src) if in_src else None
    if in_src and room.split("/")[0] not in ALLOWED:
        say(f"{name}: no row of ALLOWED says what the folder {room or 'src'} may include")
        return ours
    c_header = any(path.is_relative_to(folder) for folder in (root / "include", src / "vgpu" / "include", root / "examples"))
    if path.suffix == ".h" and not c_header and "#pragma once" not in text:
        say(f"{name}: a header without #pragma once")
    for quote, header in INCLUDE.findall(text):
        if in_src and room.startswith("algorithm") and not name.name.endswith("_test.cc") and ALGORITHM_FORBIDDEN.match(header):
            say(f"{name}: an algorithm must not include {header}")
        target = src / header
        if quote == "<" or not target.is_file():
            if quote == '"' and in_src and "vgpu" not in name.parts and not (root / "include" / header).is_file() and header.count("/"):
                say(f'{name}: "{header}" is no file under src/: includes are written from there')
            continue
        ours.append(target)
        if in_src and not may_include(room, room_of(target, src)):
            say(f"{name}: {room}/ must not include {header} (docs/design.md, the dependency rule)")
        if name.parts[0] in ("tools", "examples"):
            say(f"{name}: {name.parts[0]}/ is to use the public headers alone, not {header}")
    return ours


def check_tree(root):
    """(failures, remarks) of the repository at `root`."""
    failures, remarks = [], []
    graph = {}
    for folder in CHECKED_FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                included = check_source(path, root, failures.append)
                graph[str(path.relative_to(root))] = {str(target.relative_to(root)) for target in included}
                lines = path.read_text(encoding="utf-8").count("\n")
                if lines > SOFT_LINES:
                    remarks.append(f"{path.relative_to(root)}: {lines} lines (aim for {SOFT_LINES})")
    check_cycles(graph, failures.append)
    check_cycles({room: allowed for room, allowed in ALLOWED.items()}, failures.append)
    top = [path for path in root.iterdir() if path.is_file() and path.name != ".git"]  # git's own, in a linked work tree
    trees = [root / name for name in [*CHECKED_FOLDERS, "cmake", "docs", "packaging", "scripts", ".ci"]]
    for path in top + [path for tree in trees for path in tree.rglob("*") if path.is_file()]:
        if path.suffix in TEXT_SUFFIXES:
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if PRIVATE_PATHS.search(line):
                    failures.append(f"{path.relative_to(root)}:{number}: a path of somebody's machine")
    return failures, remarks


def check_the_checker():
    """Plants one breach of each rule in a small tree and sees that it is found."""
    planted = {
        "src/base/a.h": ("#pragma once\n#include \"model/m.h\"\n", "base/ must not include model/m.h"),
        "src/model/m.h": ("#include <vector>\n", "without #pragma once"),
        "src/executor/cpu/c.cc": ("#include \"executor/cuda/k.h\"\n", "executor/cpu/ must not include executor/cuda/k.h"),
        "src/executor/cuda/k.h": ("#pragma once\n#include \"transport/shm/s.h\"\n", "executor/cuda/ must not include transport/shm/s.h"),
        "src/transport/shm/s.h": ("#pragma once\n#include \"bootstrap/gone.h\"\n", "is no file under src/"),
        "src/algorithm/x.h": ("#pragma once\n#include <thread>\n", "an algorithm must not include thread"),
        "src/comm/p.h": ("#pragma once\n#include \"comm/q.h\"\n", "includes go round"),
        "src/comm/q.h": ("#pragma once\n#include \"comm/p.h\"\n", "includes go round"),
        "src/attic/z.cc": ("int z;\n", "no row of ALLOWED"),
        "tools/t.cc": ("#include \"base/a.h\"\n", "public headers alone"),
        "docs/d.md": ("see /" + "home/somebody/notes\n", "a path of somebody's machine"),
    }
    right = {"src/executor/cpu/ok.cc": "#include \"executor/e.h\"\n#include \"transport/transport.h\"\n#include \"nccl.h\"\n"}
    right |= {"src/executor/e.h": "#pragma once\n", "src/transport/transport.h": "#pragma once\n", "include/nccl.h": "\n"}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**{name: text for name, (text, _) in planted.items()}, **right}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        failures, _ = check_tree(root)
    missed = [f"the checker misses: {expected} ({name})" for name, (_, expected) in planted.items()
              if not any(expected in failure for failure in failures)]
    return missed + [f"the checker complains about {name}" for name in right if any(failure.startswith(name) for failure in failures)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    failures, remarks = check_tree(root)
    failures += check_the_checker()
    for remark in remarks:
        print("remark:", remark)
    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(failures)} breaches")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
