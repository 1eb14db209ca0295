#!/usr/bin/env python3
"""Runs clang-tidy over cleave/, with the options the files are built with.

Called by `make lint` after a build. Files are checked as they are compiled,
several of a folder at once: parsing libtorch takes clang-tidy half a minute.
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

# GCC's own options, and its precompiled header.
UNKNOWN_TO_CLANG = r" -fpch-preprocess| -Wno-restrict| -Winvalid-pch| -include \S+cmake_pch\.hxx"


def units():
    """(file, compiler options) for every compilation of cleave/'s own code."""
    commands = json.loads((ROOT / "build" / "compile_commands.json").read_text())
    for entry in commands:
        file = pathlib.Path(entry["file"])
        if not (file.is_relative_to(ROOT / "cleave")
                or file.is_relative_to(ROOT / "build" / "library")):
            continue
        words = shlex.split(re.sub(UNKNOWN_TO_CLANG, "", entry["command"]))
        options = [w for w in words if w.startswith(("-I", "-D", "-std"))]
        systems = [f"-isystem{words[i + 1]}"
                   for i, w in enumerate(words) if w == "-isystem"]
        yield file, options + systems, "cmake_pch.hxx" in entry["command"]


def check(unit):
    file, options, _ = unit
    result = subprocess.run(
        ["clang-tidy", "--quiet", f"--config-file={ROOT}/.clang-tidy",
         "--checks=-bugprone-suspicious-include",
         f"--header-filter={ROOT}/cleave/.*", str(file), "--", *options],
        capture_output=True, text=True, check=False)
    return file, result.returncode, result.stdout


def main():
    failed = 0
    work = sorted(units(), key=lambda unit: not unit[2])  # the slow ones first
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
