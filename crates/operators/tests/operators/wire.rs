//! The checked-in types of the program format.

#[test]
fn they_are_of_the_schema_as_it_is() {
    let schema = blake3::hash(include_bytes!("../../../../proto/program.proto"));
    let generated = include_str!("../../src/wire.rs");
    assert!(generated.contains(&format!("//! schema {schema}\n")), "run python/generate_proto.sh");
}
