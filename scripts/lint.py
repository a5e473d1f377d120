#!/usr/bin/env python3
"""Checks the C, C++ and CUDA sources: `lint.py format [--fix]` with clang-format 14, `lint.py tidy --build DIR` with clang-tidy 14.

clang-tidy takes seconds a file, so a file that passed is remembered by the content of all that went into the verdict: the file, every
file of this repository that it includes, its compile command and the configuration. It is looked at again when any of these changes.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".h", ".c", ".cc", ".cu", ".cuh")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nitinol" / "tidy"
KEPT_SECONDS = 30 * 24 * 3600
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def tool(name):
    """The pinned version of a tool: its results differ between versions."""
    for candidate in (f"{name}-14", name):
        path = shutil.which(candidate)
        if path and "version 14." in subprocess.run([path, "--version"], capture_output=True, text=True).stdout:
            return path
    sys.exit(f"lint: no {name} 14 found; `make packages-lint` installs it")


def sources():
    """All sources that git knows or would take, so that nothing built or foreign is looked at."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode().split("\0")
    paths = (ROOT / name for name in sorted(set(names)) if name.endswith(SUFFIXES))
    return [path for path in paths if path.is_file()]


def check_format(arguments):
    files = [str(path) for path in sources()]
    command = [tool("clang-format"), "-i"] if arguments.fix else [tool("clang-format"), "--dry-run", "-Werror"]
    done = subprocess.run(command + files, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        lines = {match.groups() for match in re.finditer(r"^(\S+?):(\d+):\d+: error: ", done.stderr, re.MULTILINE)}
        print("\n".join(f"{os.path.relpath(name, ROOT)}:{line}: not formatted" for name, line in sorted(lines)) or done.stderr)
        sys.exit("lint: files are not formatted; `make format` does it")
    print(f"format: {len(files)} files {'formatted' if arguments.fix else 'as they should be'}")


class Fingerprints:
    """Hashes a source together with what it includes from this repository."""

    def __init__(self):
        self.files = {}

    def read(self, path):
        if path not in self.files:
            content = path.read_bytes()
            self.files[path] = (hashlib.sha256(content).digest(), [name.decode() for name in INCLUDE.findall(content)])
        return self.files[path]

    def of(self, source, include_folders, salt):
        result = hashlib.sha256(salt)
        seen, queue = {source}, [source]
        while queue:
            path = queue.pop()
            digest, names = self.read(path)
            result.update(str(path.relative_to(ROOT)).encode() + digest)
            for name in names:
                for folder in [path.parent, *include_folders]:
                    found = pathlib.Path(os.path.normpath(folder / name))
                    if found.is_file() and found.is_relative_to(ROOT):
                        if found not in seen:
                            seen.add(found)
                            queue.append(found)
                        break
        return result.hexdigest()


def tidy_jobs(build, tidy):
    """(path, fingerprint) of every C++ source in the compile database that belongs to this repository."""
    entries = json.loads((build / "compile_commands.json").read_text())
    version = subprocess.run([tidy, "--version"], capture_output=True).stdout
    configuration = b"".join(path.read_bytes() for path in sorted(ROOT.rglob(".clang-tidy")) if "build" not in path.parts)
    fingerprints = Fingerprints()
    known = set(sources())
    jobs = {}
    for entry in entries:
        path = pathlib.Path(entry["file"]).resolve()
        if path not in known or path.suffix != ".cc" or path in jobs:
            continue
        # Where the trees lie must not matter: a fresh clone profits from an older one's results.
        command = entry["command"]
        folders = [pathlib.Path(name) for name in re.findall(r"(?:-I|-isystem )(\S+)", command)]
        command = command.replace(str(build.resolve()), "BUILD").replace(str(ROOT), "ROOT")
        jobs[path] = fingerprints.of(path, folders, version + configuration + command.encode())
    return sorted(jobs.items())


def run_tidy(tidy, build, path):
    command = [tidy, "-p", str(build), "--quiet", "--extra-arg=-Wno-unknown-warning-option", str(path)]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode == 0, done.stdout + ("" if done.returncode == 0 else done.stderr), time.monotonic() - started


def check_tidy(arguments):
    tidy = tool("clang-tidy")
    CACHE.mkdir(parents=True, exist_ok=True)
    for stamp in CACHE.iterdir():
        if time.time() - stamp.stat().st_mtime > KEPT_SECONDS:
            stamp.unlink(missing_ok=True)

    wanted = [pathlib.Path(name).resolve() for name in arguments.files]
    jobs = [job for job in tidy_jobs(arguments.build, tidy) if not wanted or job[0] in wanted]
    todo = []
    for path, fingerprint in jobs:
        stamp = CACHE / fingerprint
        if stamp.exists():
            stamp.touch()
        else:
            todo.append((path, stamp))

    failed = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = {pool.submit(run_tidy, tidy, arguments.build, path): (path, stamp) for path, stamp in todo}
        for number, future in enumerate(concurrent.futures.as_completed(running), 1):
            path, stamp = running[future]
            passed, output, seconds = future.result()
            print(f"tidy: [{number}/{len(todo)}] {path.relative_to(ROOT)} {seconds:.1f} s", flush=True)
            if passed:
                stamp.touch()
            else:
                failed.append(path)
                print(output, flush=True)
    if failed:
        sys.exit("lint: clang-tidy has complaints about " + ", ".join(str(path.relative_to(ROOT)) for path in sorted(failed)))
    print(f"tidy: {len(jobs)} files pass, {len(todo)} of them looked at now")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    form = commands.add_parser("format", help="check the format of all sources")
    form.add_argument("--fix", action="store_true", help="format in place")
    form.set_defaults(run=check_format)
    tidy = commands.add_parser("tidy", help="run clang-tidy on the sources of a build tree")
    tidy.add_argument("--build", type=pathlib.Path, default=ROOT / "build/vgpu", help="a build tree with compile_commands.json")
    tidy.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    tidy.add_argument("files", nargs="*", help="only these files")
    tidy.set_defaults(run=check_tidy)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
