//! Compiles `proto/program.proto` into prost types, with protox in place of a system protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::path::Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.join("program.proto").display());
    let descriptors = protox::compile(["program.proto"], [root])?;
    prost_build::Config::new().compile_fds(descriptors)?;
    Ok(())
}
