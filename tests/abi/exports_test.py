#!/usr/bin/env python3
"""Checks what a built libnccl.so.2 shows to the dynamic linker: its exports, its name, and the libraries that it needs.

Exit status 0: all is well; 1: it is not, with the reasons printed; 77: this check cannot be done here.
"""
import argparse
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
NEEDED_ALWAYS_FINE = re.compile(r"(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux-[\w-]+)\.so\.\d+$")
OURS = re.compile(r"p?nccl\w+$|nitinol\w*$")
PRIVATE_TO_NVIDIA = {"ncclResetDebugInitInternal"}
HERE = pathlib.Path(__file__).parent


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(library):
    lines = output("nm", "-D", "--defined-only", library).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines if line.strip()}


def dynamic_entries(library, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", output("readelf", "-d", "--wide", library))


def declared():
    """Names of the two definition lists, with their twins."""
    names = set()
    for file in ("functions.def", "device_functions.def"):
        for name in re.findall(r"^FUNCTION\([^,]+, (\w+),", (HERE / file).read_text(), re.MULTILINE):
            names |= {f"nccl{name}", f"pnccl{name}"}
    return names


def listed(file):
    lines = (HERE / file).read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def check_exports(library):
    found = exported(library)
    yield from (f"exports {name}, which is neither nccl*, pnccl* nor nitinol*" for name in sorted(found) if not OURS.match(name))
    yield from (f"does not export {name}, which the headers declare" for name in sorted(declared() - found))
    yield from (f"does not export {name}, which PyTorch needs" for name in sorted(listed("pytorch_symbols.txt") - found))
    yield from (f"does not export {name}, which NCCL has later" for name in sorted(listed("later_functions.txt") - found))


def check_needed(library, flavour):
    names = dynamic_entries(library, "SONAME")
    if names != ["libnccl.so.2"]:
        yield f"is named {names}, not libnccl.so.2"
    for needed in dynamic_entries(library, "NEEDED"):
        virtual = flavour == "vgpu" and needed.startswith("libnitinol-vgpu.so")
        if not virtual and not NEEDED_ALWAYS_FINE.match(needed):
            yield f"needs {needed} at run time"


def check_version(library):
    if not re.search(rb"NCCL version [0-9.]+\+cuda[0-9]+\.[0-9]+ ", pathlib.Path(library).read_bytes()):
        yield "does not hold its version, and that of CUDA, as programs look for them"


def check_thread_locals(library):
    if "STATIC_TLS" in output("readelf", "-d", "--wide", library):
        yield "has thread-local variables that need room from the program's start: it could not be loaded later or twice"


def check_own_calls(library):
    for name in re.findall(r"\bp?nccl[A-Z]\w*", output("readelf", "-r", "--wide", library)):
        yield f"calls its own {name} by name: another library's may be found"


def check_reference(library, reference):
    missing = exported(reference) - exported(library) - PRIVATE_TO_NVIDIA
    yield from (f"does not export {name}, which {reference} does" for name in sorted(missing) if OURS.match(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("check", choices=["exports", "needed", "reference"])
    parser.add_argument("library")
    parser.add_argument("--flavour", default="vgpu")
    parser.add_argument("--reference", help="NVIDIA's libnccl.so.2", default="")
    arguments = parser.parse_args()
    if arguments.check == "exports":
        complaints = list(check_exports(arguments.library))
    elif arguments.check == "needed":
        complaints = list(check_needed(arguments.library, arguments.flavour)) + list(check_thread_locals(arguments.library))
        complaints += list(check_version(arguments.library)) + list(check_own_calls(arguments.library))
    elif not arguments.reference:
        print("skipped: no NCCL of NVIDIA's is installed here")
        return SKIPPED
    else:
        complaints = list(check_reference(arguments.library, arguments.reference))
    for complaint in complaints:
        print(f"{arguments.library} {complaint}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
