# Two commands on a fresh machine: `make quickstart`, `make test`. Everything
# else is CMake with the presets of CMakePresets.json.

.PHONY: help quickstart test build bench format lint asan install clean setup

help:
	@echo "make quickstart   install what is missing, build, walk the eight steps"
	@echo "make test         install what is missing, build, run all tests"
	@echo "make build        build the program at build/cleave"
	@echo "make bench        build and run the benchmarks"
	@echo "make asan         tests under address and undefined-behaviour sanitizers"
	@echo "make format       format all C++ files"
	@echo "make lint         check format, names and style (clang-format, clang-tidy)"
	@echo "make install      install program and library (PREFIX=/usr/local)"
	@echo "make clean        remove the build folders"

PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

setup:
	./setup.sh

build: setup
	cmake --preset default
	cmake --build --preset default -j $(JOBS)

quickstart: build
	build/cleave quickstart

test: build
	ctest --preset default -j $(JOBS)

asan: setup
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ASAN_OPTIONS=detect_leaks=0 ctest --preset asan -j $(JOBS)

bench: setup
	./setup.sh bench
	cmake --preset default
	cmake --build --preset default -j $(JOBS) --target cleave bench_operations \
	  bench_all_reduce
	build/bench/bench_operations --benchmark_repetitions=5 \
	  --benchmark_enable_random_interleaving=true \
	  --benchmark_report_aggregates_only=true
	OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	  mpiexec -n 2 build/bench/bench_all_reduce
	.venv/bin/python bench/run

sources = $(shell git ls-files --cached --others --exclude-standard \
            '*.h' '*.cpp')

format:
	./setup.sh lint
	clang-format -i $(sources)

lint: build
	./setup.sh lint
	clang-format --dry-run --Werror $(sources)
	./lint.py

install: build
	cmake --install build --prefix $(PREFIX)

clean:
	rm -rf build build-asan
