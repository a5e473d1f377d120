#!/usr/bin/env python3
"""For tests: starts nitinol-perf as some do, and looks whether it has done its work. `strange_start.py HOW PROGRAM
ARGUMENT...`

ignoring: its children's ends are ignored, as by supervisors. children: it has some already, which end, as when a shell
becomes it. bytes: it writes its JSON to a file whose name is no UTF-8. killed: it is, after its first rows.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def ignore_children():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def have_children():
    for _ in range(3):
        os.fork() or os._exit(7)


def run(command, prepare=None):
    """True if it says that all is right."""
    done = subprocess.run(command, preexec_fn=prepare, stdout=subprocess.PIPE, check=False)
    sys.stdout.buffer.write(done.stdout)
    return done.returncode == 0 and b"all results right" in done.stdout


def write_to_a_file_of_any_bytes(command):
    with tempfile.TemporaryDirectory() as folder:
        name = os.fsencode(folder) + b"/r\xe9sult.json"
        is_right = run([*command, b"--json", name])
        with open(name, encoding="utf-8") as file:
            return is_right and bool(json.load(file)["rows"])


def kill_after_first_rows(command):
    """True if the rows are in the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "result.json"
        with subprocess.Popen([*command, "--json", path], stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not (path.exists() and path.read_bytes()):
                time.sleep(0.01)
            process.kill()
        result = json.loads(path.read_bytes())
        return bool(result["rows"]) and not result["complete"]


def main():
    how, *command = sys.argv[1:]
    if how == "bytes":
        return write_to_a_file_of_any_bytes(command)
    if how == "killed":
        return kill_after_first_rows(command)
    return run(command, {"ignoring": ignore_children, "children": have_children}[how])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
