# SPDX-License-Identifier: Apache-2.0
# What a person types. The build itself is CMake's (CMakePresets.json); results are in build/.
PREFIX       ?= /usr/local
FUZZ_SECONDS ?= 600
TEST         := tools/test.py

.DEFAULT_GOAL := all
.PHONY: all demo test test-all test-arm asan tsan posix clang torch fuzz soak python
.PHONY: bench bench-peers bench-messages bench-net bench-secure bench-torch check tidy format install clean help

all: ## build the library and the command (build/hearth)
	@./setup
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) >/dev/null
	@cmake --build build

demo: all ## a race: four processes behind slow lines train one model with each codec; under two minutes
	@build/hearth demo --report build/hearth-demo.html

test: all ## what to run before a commit: five minutes on two idle cores, ten on busy ones
	@$(TEST) release

test-all: ## sanitizers, clang, clang-tidy, posix, ARM under qemu, short fuzzing, test hosts, PyTorch
	@./setup --all
	@$(TEST) asan tsan clang tidy posix arm fuzz torch net

test-arm: ## kernels and plans on 64-bit ARM under qemu, results compared with this machine's
	@./setup --all
	@$(TEST) arm

asan tsan clang posix torch: ## one suite of test-all: asan, tsan, clang, posix or torch
	@./setup --all
	@$(TEST) $@

fuzz: ## every fuzzer for FUZZ_SECONDS (600)
	@./setup --all
	@$(TEST) fuzz --fuzz-seconds $(FUZZ_SECONDS)

soak: all ## the tests with their full repeat counts: hours
	@$(TEST) soak

python: ## a wheel of the Python package, with the library in it, into build/
	@./setup
	@mkdir -p build
	@$$(tools/pick_python.py pip torch) -m pip --disable-pip-version-check wheel --quiet --no-deps --no-index \
	  --wheel-dir build bindings/python
	@ls build/*.whl

bench: all ## measure kernels and collectives
	@cmake --build build --target bench_kernels
	@build/bench/bench_kernels
	@build/hearth bench allreduce --transport mem --ranks 4 --bytes 4,1K,64K,1M,16M,100M

bench-peers: all ## all-reduce beside Open MPI, MPICH and Gloo, which it installs, and topk: a quarter of an hour
	@cmake --build build --target bench_kernels
	@python3 -B bench/peers/run.py
	@python3 -B bench/peers/topk.py

bench-messages: all ## messages and remote calls beside Open MPI and nng; beside each other: a quarter of an hour
	@cmake --build build --target hearth_switch
	@python3 -B bench/peers/run_messages.py
	@python3 -B bench/net/bench_messages.py

bench-net: all ## all-reduce between test hosts, at 0.1 and 1 Gbit/s and up to 20 ms; codecs beside plain; neighbours
	@cmake --build build --target hearth_switch
	@python3 -B bench/net/bench_net.py
	@python3 -B bench/net/bench_codecs.py
	@python3 -B bench/net/bench_neighbours.py

bench-secure: all ## what encryption costs: plain, TLS and QUIC on loopback and between test hosts
	@cmake --build build --target hearth_switch
	@python3 -B bench/net/bench_secure.py

bench-torch: ## step times of a PyTorch model between test hosts, beside Gloo and its hooks
	@./setup --all
	@cmake --preset release -DHEARTH_TORCH=ON >/dev/null
	@cmake --build build
	@cmake --build build --target hearth_switch
	@PYTHONPATH=bindings/python $$(tools/pick_python.py --need torch numpy) -B bench/torch/run_torch.py

check: ## house rules and formatting
	@python3 -B tools/check.py
	@python3 -B tools/check.py --format

tidy: all ## clang-tidy over src and cli
	@python3 -B tools/check.py --tidy

format: ## format every C and C++ file
	@python3 -B tools/check.py --reformat

install: all ## install below PREFIX (/usr/local); DESTDIR is honoured
	@cmake --install build --prefix $(PREFIX)

clean: ## remove everything built
	@rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z].*:.*## / { printf "  make %-24s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
