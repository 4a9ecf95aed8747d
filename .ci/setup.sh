#!/usr/bin/env bash
# Installs what a job needs, and only what is missing: with everything there it changes nothing and needs no network.
#   .ci/setup.sh build    a Rust toolchain, a linker, the crates that the default build uses, python3, and the archives
#                         that the wire's tests read
#   .ci/setup.sh check    a toolchain and crates, and rustfmt, clippy and cargo-deny
#   .ci/setup.sh fuzz     a toolchain and crates, a C++ compiler, and the crates of the fuzzer
#   .ci/setup.sh bench    a toolchain and crates, and libuv, one of the peers
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"

# Pinned, so that a new release of the tool cannot fail an old commit.
cargo_deny_version=0.20.2

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

# Installs Debian packages, with sudo when we are not root. Returns false when that is not possible here.
apt_install() {
    local as_root=()
    [ "$(id -u)" = 0 ] || { have sudo && as_root=(sudo); } || return 1
    have apt-get || return 1
    say "installing $*"
    # A stale package list only matters when the install itself fails.
    "${as_root[@]}" apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq "$@" >/dev/null
}

check_kernel() {
    local release
    release=$(uname -r)
    [ "$(uname -s)" = Linux ] || fail "Handle Watcher needs Linux 5.11 or newer; this is $(uname -s)"
    at_least "${release%%-*}" 5.11 || fail "Handle Watcher needs Linux 5.11 or newer; this is $release"
}

# Whether version $1 is at least version $2.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

need_rust() {
    local floor found
    floor=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! have cargo; then
        # Debian's own cargo is too old on most releases; its rustup, where there is one, brings a current one.
        { apt_install rustup && rustup default stable; } ||
            fail "cargo is missing: install Rust $floor or newer (https://rustup.rs), then run this again"
    fi
    found=$(rustc --version | awk '{ print $2 }')
    at_least "${found%%-*}" "$floor" ||
        fail "Rust $floor or newer is needed and $found is installed: run 'rustup update stable', then run this again"
}

need_linker() {
    have cc || apt_install gcc libc6-dev ||
        fail "a C linker is missing: install gcc, then run this again"
}

# Fetches what the default build of the workspace uses. The peers of the benches stay out: they are an optional
# feature, and `cargo fetch` would bring them in.
need_crates() {
    cargo tree --workspace --features handle-watcher-client/cli,handle-watcher/daemon --locked --offline >/dev/null 2>&1 && return
    say "fetching crates"
    cargo tree --workspace --features handle-watcher-client/cli,handle-watcher/daemon --locked >/dev/null ||
        fail "the crates could not be fetched: this needs the network once, and a Cargo.lock that fits Cargo.toml"
}

# That the linker finds it is all the benches ask of it: they declare its functions themselves.
need_libuv() {
    cc -shared -o /dev/null -luv 2>/dev/null && return
    apt_install libuv1-dev && cc -shared -o /dev/null -luv 2>/dev/null ||
        fail "libuv is missing, which the benches measure us beside: install libuv1-dev, then run this again"
}

# Only the tests need these two, so that they are missing fails the tests that say so, and nothing else.
want_python() {
    have python3 || apt_install python3-minimal ||
        say "python3 is missing, which some tests run: install it, then run this again"
}

# Real .asar archives, for the reader of pickles: four files that the npm package asar 0.9.0 (MIT) ships under test/.
# Their sums are those of the vectors, so neither another version nor a damaged file passes.
want_archives() {
    local place=${CARGO_TARGET_DIR:-target}/vectors vectors=watcher/wire/tests/vectors/pickle.json
    archives_fit "$place" "$vectors" && return
    say "fetching archives for the tests into $place"
    { have npm || apt_install npm; } && fetch_archives "$place" && archives_fit "$place" "$vectors" ||
        say "the archives could not be fetched: this needs npm, and its registry once; run 'make setup' again with the network"
}

fetch_archives() {
    rm -rf "$1"
    mkdir -p "$1"
    (cd "$1" && npm pack --silent asar@0.9.0 >/dev/null && tar -xzf asar-0.9.0.tgz && rm asar-0.9.0.tgz)
}

# Whether folder $1 holds every archive that the vectors $2 name, with its sum.
archives_fit() {
    awk -v place="$1" -F '"' '
        /"file":/ { file = $4 }
        /"sha256":/ && file { print $4 "  " place "/package/" file; file = "" }' "$2" |
        sha256sum --check --quiet --strict >/dev/null 2>&1
}

need_cpp() {
    have c++ || apt_install g++ ||
        fail "a C++ compiler is missing, which builds the fuzzer: install g++, then run this again"
}

# The fuzz targets are a workspace of their own, so that nobody else builds the fuzzer.
need_fuzz_crates() {
    cargo fetch --locked --manifest-path watcher/fuzz/Cargo.toml --quiet ||
        fail "the fuzzer's crates could not be fetched: this needs the network once"
}

need_component() {
    cargo "$1" --version >/dev/null 2>&1 && return
    have rustup || fail "cargo $1 is missing and rustup is not there to install it: install $2, then run this again"
    say "installing $2"
    rustup component add "$2"
}

need_cargo_deny() {
    cargo deny --version >/dev/null 2>&1 && return
    say "installing cargo-deny (this builds it, once)"
    cargo install cargo-deny --version "$cargo_deny_version" --locked
}

check_kernel
need_rust
need_linker
need_crates
case ${1:-build} in
build)
    want_python
    want_archives
    ;;
check)
    need_component fmt rustfmt
    need_component clippy clippy
    need_cargo_deny
    ;;
bench) need_libuv ;;
fuzz)
    need_cpp
    need_fuzz_crates
    ;;
*) fail "unknown job '$1': say build, check, bench or fuzz" ;;
esac
