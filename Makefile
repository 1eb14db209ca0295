# Two commands on a fresh machine: `make quickstart`, `make test`. Everything
# else is CMake with the presets of CMakePresets.json.

.PHONY: help quickstart test soak build bench format lint asan tsan install clean setup

help:
	@echo "make quickstart   install what is missing, build, walk the eight steps"
	@echo "make test         install what is missing, build, run all tests"
	@echo "make soak         long products of cases and repetitions, up to an hour"
	@echo "make build        build the program at build/cleave"
	@echo "make bench        build and run the benchmarks"
	@echo "make asan         tests under address and undefined-behaviour sanitizers"
	@echo "make tsan         tests of what threads share, under the thread sanitizer"
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

# Kills at many moments, threads that race, every exactness case again and again.
soak: build
	CLEAVE_KILLS=60 build/tests/cli/test_program \
	  --gtest_filter='RanksProgram.*'
	build/tests/train/test_train --gtest_repeat=10 --gtest_brief=1 \
	  --gtest_filter='Stealing*:Turns*:InOrder*:Failure*:Trainer*'
	build/tests/train/test_train --gtest_repeat=4 --gtest_brief=1
	build/tests/comm/test_comm --gtest_repeat=20 --gtest_brief=1

asan: setup
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS)
	ASAN_OPTIONS=detect_leaks=0 ctest --preset asan -j $(JOBS)

tsan: setup
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS)
	for test in comm/test_comm schedule/test_schedule plan/test_plan \
	    plan/test_plan_measure \
	    "train/test_train --gtest_filter=$(raced)"; do \
	  TSAN_OPTIONS="halt_on_error=1 suppressions=$(CURDIR)/tests/tsan.supp" \
	    build-tsan/tests/$$test || exit 1; \
	done

# Of the tests of training, under the thread sanitizer: not every network.
raced = Trainer*:Failure*:InOrder*:Stealing*:Turns*:*Exactness*_2_devices_*:*Exactness*gpt*_4_*:*Replicas*2x2*

bench: build
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
	rm -rf build build-asan build-tsan
