#!/usr/bin/env bash
# Installs what Cleave needs and this machine lacks: Debian packages, and
# libtorch from the torch Python package into .venv (unless CMAKE_PREFIX_PATH
# already names a libtorch). Installing nothing is success when nothing lacks.
#
#   ./setup.sh          what building, tests, benchmarks and the quickstart need
#   ./setup.sh lint     also what `make lint` and `make format` need
set -euo pipefail
cd "$(dirname "$0")"

torch_version=2.13.0
packages=(g++ cmake ninja-build ccache python3-venv libcli11-dev
  libtomlplusplus-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev zlib1g-dev
  libopenmpi-dev openmpi-bin iproute2
  dataset-fashion-mnist)
for group in "$@"; do
  case "$group" in
    lint) packages+=(clang-format clang-tidy) ;;
    *)
      echo "setup.sh: unknown group '$group'; known: lint" >&2
      exit 2
      ;;
  esac
done

is_installed() {
  [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

install_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    echo "setup.sh: no Debian here; CMake will name what it cannot find." \
      "The Debian packages would be: ${packages[*]}"
    return
  fi
  for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} -eq 0 ]] && return

  local as_root=()
  if [[ "$(id -u)" -ne 0 ]]; then
    if ! sudo -n true 2>/dev/null; then
      echo "setup.sh: these packages are missing: ${missing[*]}" >&2
      echo "Install them with:" >&2
      echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  echo "setup.sh: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# True when CMAKE_PREFIX_PATH (or torch's own path inside it) has a libtorch.
libtorch_is_named() {
  local prefix
  IFS=':;' read -ra prefixes <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${prefixes[@]}"; do
    [[ -f "$prefix/share/cmake/Torch/TorchConfig.cmake" ||
      -f "$prefix/Torch/TorchConfig.cmake" ]] && return 0
  done
  return 1
}

install_libtorch() {
  libtorch_is_named && return
  if [[ "$(.venv/bin/python -c \
    'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null ||
    true)" == "$torch_version"* ]]; then
    return
  fi
  echo "setup.sh: installing libtorch $torch_version into .venv"
  python3 -m venv .venv
  .venv/bin/pip install --quiet --disable-pip-version-check \
    "torch==$torch_version"
}

install_packages
install_libtorch
