#!/usr/bin/env python3
"""For tests: starts a program as some do. `strange_start.py ignoring|children|bytes PROGRAM ARGUMENT...`

ignoring: its children's ends are ignored, as by supervisors. children: it has some already, which end, as when a shell
becomes it. bytes: it writes its JSON to a file whose name is no UTF-8, which must hold some in the end.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile

how, *command = sys.argv[1:]
if how == "ignoring":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
elif how == "children":
    for _ in range(3):
        os.fork() or os._exit(7)
elif how == "bytes":
    with tempfile.TemporaryDirectory() as folder:
        name = os.fsencode(folder) + b"/r\xe9sult.json"
        subprocess.run([*command, b"--json", name], check=True)
        with open(name, encoding="utf-8") as file:
            sys.exit(0 if json.load(file)["rows"] else 1)
else:
    sys.exit(__doc__)
os.execv(command[0], command)
