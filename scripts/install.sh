#!/usr/bin/env bash
# Sets up .venv with the program, its demo model and the development tools.
# Usage: scripts/install.sh auto|cpu|cuda|vulkan|metal|rocm
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
wanted="${1:-auto}"

say() { printf '%s\n' "$*"; }
fail() { printf 'install: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

find_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3.14 python3 python; do
        if have "$name" && "$name" -c \
            'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    fail "no Python 3.11 or newer with the venv module was found." \
        "Install one (on Debian: apt-get install python3 python3-venv) and run make again."
}

choose_backend() {
    case "$wanted" in
        auto)
            if [ "$(uname -s)" = Darwin ]; then printf metal
            elif have nvcc && have nvidia-smi && nvidia-smi >/dev/null 2>&1; then printf cuda
            elif have hipcc && have rocminfo && rocminfo >/dev/null 2>&1; then printf rocm
            else printf cpu
            fi ;;
        cpu|cuda|vulkan|metal|rocm) printf '%s' "$wanted" ;;
        *) fail "BACKEND=$wanted is not one of auto, cpu, cuda, vulkan, metal, rocm." ;;
    esac
}

cmake_options() {
    case "$1" in
        cpu) printf '%s' '-DGGML_METAL=off' ;;
        cuda) printf '%s' '-DGGML_CUDA=on' ;;
        vulkan) printf '%s' '-DGGML_VULKAN=on' ;;
        metal) printf '%s' '-DGGML_METAL=on' ;;
        rocm) printf '%s' '-DGGML_HIP=on' ;;
    esac
}

install_system_programs() {
    [ "$(uname -s)" = Linux ] || return 0
    local missing=()
    have bwrap || missing+=(bubblewrap)
    have tmux || missing+=(tmux)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && have apt-get; then
        say "Installing ${missing[*]}."
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
            </dev/null >/dev/null || true
    fi
    have bwrap || say "Notice: bubblewrap is missing, so the sandbox tier 'best' is not to be" \
        "had here. Install it with the system's package manager."
    have tmux || say "Notice: tmux is missing; the tests that drive a real terminal need it."
}

backend="$(choose_backend)"
[ "$wanted" = auto ] && say "Backend of llama.cpp: $backend (choose another with make install BACKEND=...)"

if ! [ -x "$venv/bin/python" ]; then
    python="$(find_python)"
    say "Making $venv with $("$python" --version)."
    "$python" -m venv "$venv"
fi
"$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "$venv has a Python older than 3.11; run make clean and then make install."

install_system_programs

pip=("$venv/bin/python" -m pip install --disable-pip-version-check --no-input --constraint constraints.txt)
built="$(cat "$venv/.backend" 2>/dev/null || true)"
if ! "$venv/bin/python" -m pip show --quiet llama-cpp-python 2>/dev/null; then built=none; fi
if [ "${built:-cpu}" != "$backend" ]; then
    have c++ || have g++ || have clang++ \
        || fail "no C++ compiler was found (on Debian: apt-get install g++)."
    say "Building llama-cpp-python for $backend from source; this takes some minutes."
    options=()
    # A wheel that pip has kept may have been built for another backend.
    [ "$backend" = cpu ] || options=(--no-cache-dir --no-binary llama-cpp-python)
    [ "$built" = none ] || options+=(--force-reinstall --no-deps)
    CMAKE_ARGS="$(cmake_options "$backend") ${CMAKE_ARGS:-}" \
        "${pip[@]}" --quiet ${options[@]+"${options[@]}"} llama-cpp-python
fi
printf '%s' "$backend" >"$venv/.backend"

say "Installing VeriLoop and its tools into $venv."
"${pip[@]}" --quiet --editable '.[demo,quant,dev]'
