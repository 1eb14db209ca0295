#!/usr/bin/env python3
"""Runs clang-tidy over cleave/, with the options the files are built with.

Called by `make lint` after a build. Parsing libtorch takes clang-tidy half a
minute a file, so the files of a folder that need it are checked as one.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent
WORK = ROOT / "build" / "lint"

# GCC's own options, and its precompiled header.
UNKNOWN_TO_CLANG = r" -fpch-preprocess| -Wno-restrict| -Winvalid-pch| -include \S+cmake_pch\.hxx"


def units():
    """(file to check, compiler options) for every unit of work."""
    commands = json.loads((ROOT / "build" / "compile_commands.json").read_text())
    groups = {}
    for entry in commands:
        file = pathlib.Path(entry["file"])
        if not file.is_relative_to(ROOT / "cleave"):
            continue
        with_torch = "cmake_pch.hxx" in entry["command"]
        command = re.sub(UNKNOWN_TO_CLANG, "", entry["command"])
        words = shlex.split(command)
        options = [w for w in words if w.startswith(("-I", "-D", "-std"))]
        systems = [f"-isystem{words[i + 1]}"
                   for i, w in enumerate(words) if w == "-isystem"]
        key = str(file.parent.relative_to(ROOT)) if with_torch else str(file)
        groups.setdefault(key, (options + systems, []))[1].append(file)
    for key, (options, files) in groups.items():
        if len(files) == 1:
            yield files[0], options
        else:
            unit = WORK / (key.replace("/", "_") + ".cpp")
            unit.write_text("".join(f'#include "{f}"\n' for f in sorted(files)))
            yield unit, options


def check(unit):
    file, options = unit
    result = subprocess.run(
        ["clang-tidy", "--quiet", f"--config-file={ROOT}/.clang-tidy",
         "--checks=-bugprone-suspicious-include",
         f"--header-filter={ROOT}/cleave/.*", str(file), "--", *options],
        capture_output=True, text=True, check=False)
    return file, result.returncode, result.stdout


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    failed = 0
    work = sorted(units(), key=lambda unit: WORK not in unit[0].parents)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, code, output in pool.map(check, work):
            if code != 0:
                failed += 1
                print(output)
            else:
                print(f"lint: {os.path.relpath(file, ROOT)} is clean", flush=True)
    print(f"{len(work) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
