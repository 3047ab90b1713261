//! Round trips, the container, and the listing.

use super::*;

#[test]
fn bytes_round_trip() {
    let program = sample().build().unwrap();
    let again = Program::from_bytes(&program.to_bytes()).unwrap();
    assert!(again == program && again.hash() == program.hash());
    assert_eq!(again.to_bytes(), program.to_bytes());
}

#[test]
fn files_round_trip_and_leave_nothing_beside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.covey");
    let program = sample().build().unwrap();
    program.write(&path).unwrap();
    program.write(&path).unwrap();
    assert!(Program::read(&path).unwrap() == program);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(Program::read(folder.path().join("other")).unwrap_err().to_string().starts_with("cannot read program '"));
    assert!(program.write(folder.path().join("no/such")).unwrap_err().to_string().starts_with("cannot write program"));
}

#[test]
fn the_header_is_as_documented() {
    let program = sample().build().unwrap();
    let bytes = program.to_bytes();
    assert_eq!(&bytes[..8], b"COVEY\0\x01\0");
    assert_eq!(bytes[8..40], *blake3::hash(&bytes[40..]).as_bytes());
    assert_eq!(program.hash().to_string(), blake3::hash(&bytes[40..]).to_hex().to_string());
    assert_eq!(program.hash().short().len(), 12);
}

#[test]
fn each_defect_of_the_container_has_its_message() {
    let good = sample().build().unwrap().to_bytes();
    let message = |bytes: &[u8]| Program::from_bytes(bytes).unwrap_err().to_string();
    let changed = |index: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[index] = byte;
        message(&bytes)
    };
    let foreign = "this is not a Covey program: make one with `covey compile model.onnx -o model.covey`";
    let truncated = "the file is truncated: copy it again in full, or compile the model again";
    let corrupted = "the file is corrupted: copy it again or compile the model again";
    assert_eq!(message(b""), foreign);
    assert_eq!(message(b"ONNX"), foreign);
    assert_eq!(changed(0, b'c'), foreign);
    assert_eq!(changed(6, 0), foreign);
    assert_eq!(message(b"COVEY\0"), truncated);
    assert_eq!(message(&good[..40]), truncated);
    assert_eq!(message(&good[..good.len() - 1]), corrupted);
    assert_eq!(changed(7, 1), corrupted);
    assert_eq!(changed(8, !good[8]), corrupted);
    let newer = "the file was made by a newer Covey (format version 2, this build reads 1): upgrade Covey";
    assert_eq!(changed(6, 2), newer);
    let garbage = message(&container::seal(&[0xFF; 9]));
    assert!(garbage.starts_with("the file's content is malformed ("), "{garbage}");
    let newer_inside = super::changed(|p| p.format_version = 2).unwrap_err().to_string();
    assert_eq!(newer_inside, newer);
}

#[test]
fn a_hostile_file_cannot_ask_for_much_memory() {
    // An empty node takes two bytes here and over a hundred once decoded.
    let flood = |key: u8, count: usize| [key, 0].repeat(count);
    let nodes = Program::from_bytes(&container::seal(&flood(6 << 3 | 2, 100_001))).unwrap_err().to_string();
    assert_eq!(nodes, "the program is invalid: it holds 100001 nodes and at most 100000 are allowed");
    let values = Program::from_bytes(&container::seal(&flood(5 << 3 | 2, 400_001))).unwrap_err().to_string();
    assert_eq!(values, "the program is invalid: it holds 400001 values and at most 400000 are allowed");
    assert_eq!(
        container::check_size(1 << 31).unwrap_err().to_string(),
        "the file holds 2147483648 bytes and a program at most 1073741824: compile large weights as secret parameters"
    );
}

#[test]
fn full_shapes_carry_the_batch() {
    let program = sample().build().unwrap();
    let image = &program[program.find("image").unwrap()];
    assert_eq!((image.full_shape(5), image.rank(), image.elements()), (vec![5, 2, 8, 8], 4, 128));
    let kernel = &program[program.find("kernel").unwrap()];
    assert_eq!((kernel.full_shape(5), kernel.rank()), (vec![4, 1, 3, 3], 4));
    assert!(kernel.is_weight() && kernel.in_weights_file() && !image.is_weight());
    assert!(program.find("nothing").is_none());
}

#[test]
fn states_and_odd_rings_are_part_of_the_format() {
    let mut b = ProgramBuilder::new("step", Ring::odd(4_293_918_721).unwrap());
    let gradient = b.input("gradient", &[], 8);
    b.value_mut(gradient).batched = false;
    let state = b.parameter("state", &[], 8);
    b.value_mut(state).kind = Kind::State;
    b.node_into("update", op::Sub, &[state, gradient], &[state]);
    let seen = b.node("seen", op::ShiftLeft { bits: 2 }, &[state]);
    b.output(seen);
    let program = b.build().unwrap();
    assert_eq!(program.parameters().map(|(id, _)| id).collect::<Vec<_>>(), [state]);
    assert_eq!(program.ring(), Ring::Odd(4_293_918_721));
    // |v| < 2^30 is the widest power of two inside (n - 1) / 2.
    assert_eq!(covey_operators::largest_bound(program.ring()), 30);
}

#[test]
fn windows_slide_as_onnx_says() {
    let window = Window { kernel: [3, 2], strides: [2, 1], pads: [1, 0, 0, 1], dilations: [1, 3] };
    assert_eq!(window.span(), [3, 4]);
    assert_eq!(window.output_size([6, 5]), Some([3, 3]));
    assert_eq!(window.output_size([1, 5]), None);
}

#[test]
fn the_listing_shows_the_whole_program() {
    let program = sample().build().unwrap();
    let expected = include_str!("sample.txt").replace("<hash>", &program.hash().to_string());
    let expected = expected.replace("<version>", env!("CARGO_PKG_VERSION"));
    assert_eq!(program.dump(), expected);
}
