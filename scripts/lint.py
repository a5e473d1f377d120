#!/usr/bin/env python3
"""Checks the C, C++ and CUDA sources: `lint.py format [--fix]` with clang-format 14, `lint.py tidy --build DIR` with clang-tidy 14.

clang-tidy takes seconds a file, so a file that passed is remembered by the content of all that went into the verdict: the file, every
file of this repository that it includes, its compile command and the configuration. It is looked at again when any of these changes.
Files are looked at in groups (tidy_groups.py says which, and what that cannot show); complaints are those about single files.
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
import tempfile
import time

import tidy_groups

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = (".h", ".c", ".cc", ".cu", ".cuh")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nitinol" / "tidy"
KEPT_SECONDS = 30 * 24 * 3600
GROUP = 24  # more save little time and take more memory (600 MB)
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


class Included:
    """Reads sources together with what they include from this repository."""

    def __init__(self):
        self.files = {}

    def read(self, path):
        if path not in self.files:
            content = path.read_bytes()
            names = [name.decode() for name in INCLUDE.findall(content)]
            self.files[path] = (hashlib.sha256(content).digest(), names, tidy_groups.namespaces(content.decode()))
        return self.files[path]

    def of(self, source, include_folders, salt):
        """A hash of all that `source` consists of, and the namespaces that it sees."""
        result = hashlib.sha256(salt)
        namespaces = set()
        seen, queue = {source}, [source]
        while queue:
            path = queue.pop()
            digest, names, opened = self.read(path)
            result.update(str(path.relative_to(ROOT)).encode() + digest)
            namespaces |= opened
            for name in names:
                for folder in [path.parent, *include_folders]:
                    found = pathlib.Path(os.path.normpath(folder / name))
                    if found.is_file() and found.is_relative_to(ROOT):
                        if found not in seen:
                            seen.add(found)
                            queue.append(found)
                        break
        return result.hexdigest(), namespaces


def tidy_jobs(build, tidy):
    """(source, fingerprint) of every C++ source in the compile database that belongs to this repository."""
    version = subprocess.run([tidy, "--version"], capture_output=True).stdout
    configuration = b"".join(path.read_bytes() for path in sorted(ROOT.rglob(".clang-tidy")) if "build" not in path.parts)
    included = Included()
    known = set(sources())
    entries = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"]).resolve()
        if path in known and path.suffix == ".cc":
            entries.setdefault(path, []).append(entry)
    jobs = []
    for path, compiled in sorted(entries.items()):
        # Where the trees lie must not matter: a fresh clone profits from an older one's results.
        command = compiled[0]["command"]
        folders = [pathlib.Path(name) for name in re.findall(r"(?:-I|-isystem )(\S+)", command)]
        command = command.replace(str(build.resolve()), "BUILD").replace(str(ROOT), "ROOT")
        fingerprint, namespaces = included.of(path, folders, version + configuration + command.encode())
        jobs.append((tidy_groups.Source(path, {tidy_groups.shared_command(entry) for entry in compiled}, namespaces), fingerprint))
    return jobs


def run_tidy(tidy, build, group):
    """Whether clang-tidy has no complaint about a group of sources, what it says, and the seconds that it took."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        text, options = group[0].path, []
        if len(group) > 1:
            text, options = pathlib.Path(folder) / "group.cc", [f"--config-file={ROOT / '.clang-tidy'}"]
            text.write_text(tidy_groups.joined(group), encoding="utf-8")
        # A source may be compiled in several ways, and in one for several programs, which is no reason to look at it again.
        commands = [command.replace(tidy_groups.SOURCE, str(text)) for command in sorted(group[0].commands)]
        entries = [{"directory": str(build.resolve()), "file": str(text), "command": command} for command in commands]
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(entries))
        options += ["-p", folder, "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
        done = subprocess.run([tidy, *options, str(text)], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode == 0, done.stdout + ("" if done.returncode == 0 else done.stderr), time.monotonic() - started


def look_at(groups, look, jobs):
    """Yields groups with the answers of `look`, whose first part is whether the group passed. If several did not, their halves follow."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(look, group): group for group in groups}
        while running:
            for future in concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED).done:
                group = running.pop(future)
                yield group, future.result()
                if len(group) > 1 and not future.result()[0]:
                    half = len(group) // 2
                    running.update({pool.submit(look, part): part for part in (group[:half], group[half:])})


def unstamped(jobs):
    """The sources that have not passed as they are, with the files that are to remember it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for stamp in CACHE.iterdir():
        if time.time() - stamp.stat().st_mtime > KEPT_SECONDS:
            stamp.unlink(missing_ok=True)
    todo = {}
    for source, fingerprint in jobs:
        stamp = CACHE / fingerprint
        if stamp.exists():
            stamp.touch()
        else:
            todo[source] = stamp
    return todo


def check_tidy(arguments):
    tidy = tool("clang-tidy")
    wanted = [pathlib.Path(name).resolve() for name in arguments.files]
    jobs = [job for job in tidy_jobs(arguments.build, tidy) if not wanted or job[0].path in wanted]
    todo = unstamped(jobs)
    # Few sources make small groups, one for each job at least.
    groups = tidy_groups.groups(todo, min(GROUP, -(-len(todo) // arguments.jobs)))
    failed = []
    number = 0
    for group, (passed, output, seconds) in look_at(groups, lambda group: run_tidy(tidy, arguments.build, group), arguments.jobs):
        names = str(group[0].path.relative_to(ROOT)) + (f" and {len(group) - 1} more" if len(group) > 1 else "")
        if len(group) > 1 and not passed:
            print(f"tidy: {names} do not pass together {seconds:.1f} s", flush=True)
            continue
        number += len(group)
        print(f"tidy: [{number}/{len(todo)}] {names} {seconds:.1f} s", flush=True)
        if passed:
            for source in group:
                todo[source].touch()
        else:
            failed.append(group[0].path)
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
    tidy.add_argument("--build", type=pathlib.Path, default=ROOT / "build/lint", help="a build tree with compile_commands.json")
    tidy.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    tidy.add_argument("files", nargs="*", help="only these files")
    tidy.set_defaults(run=check_tidy)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
