#!/usr/bin/env bash
# Runs clang-tidy over the sources of cleave/ with the options they are built
# with; `make lint` calls it after a build. Files that include torch take up to
# a minute each, so the files that were clean before and are unchanged (with
# all headers of cleave/) are not checked again.
set -euo pipefail
cd "$(dirname "$0")"

# GCC's options that clang does not know, and its precompiled header.
sed -E -e 's/ -fpch-preprocess| -Wno-restrict| -Winvalid-pch//g' \
  -e 's/ -include [^ ]*cmake_pch\.hxx//g' build/compile_commands.json \
  >build/lint_commands.json
mkdir -p build/lint/clean
cp build/lint_commands.json build/lint/compile_commands.json
headers=$(git ls-files --cached --others --exclude-standard 'cleave/*.h' \
  .clang-tidy | xargs cat | sha256sum)

check() {
  local stamp
  stamp=build/lint/clean/$(echo "$2" | cat - "$1" | sha256sum | cut -c1-40)
  [[ -e "$stamp" ]] && return
  clang-tidy --quiet -p build/lint "$1" 2>/dev/null && touch "$stamp"
}
export -f check

git ls-files --cached --others --exclude-standard 'cleave/*.cpp' |
  xargs -P "$(nproc)" -I{} bash -c 'check "$1" "$2"' _ {} "$headers"
