#!/bin/sh
# Regenerates python/covey/_proto and crates/operators/src/wire.rs from proto/program.proto. Needs
# `pip install grpcio-tools==1.76.0`: the version is pinned because generated code refuses protobuf runtimes older than its
# compiler.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m grpc_tools.protoc -Iproto --python_out=python/covey/_proto --pyi_out=python/covey/_proto \
    proto/program.proto
CARGO_TARGET_DIR=target/proto cargo run --quiet --locked --manifest-path proto/rust/Cargo.toml
rustfmt --edition 2024 crates/operators/src/wire.rs
