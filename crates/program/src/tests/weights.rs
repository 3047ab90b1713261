//! The weights file: round trips, and each defect with its message.

use std::collections::HashMap;

use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::*;

/// A weights file taken apart, to be changed and put together again.
struct Loose {
    metadata: HashMap<String, String>,
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

impl Loose {
    fn of(program: &Program) -> Loose {
        let tensors = program.parameters().map(|(_, value)| {
            let bytes = some_weights(program)[&value.name].iter().flat_map(|&v| (v as i32).to_le_bytes()).collect();
            (value.name.clone(), (Dtype::I32, value.shape.clone(), bytes))
        });
        let metadata = [("format", "covey-weights"), ("version", "1"), ("program", &program.hash().to_string())];
        let metadata = metadata.map(|(key, value)| (key.to_string(), value.to_string())).into();
        Loose { metadata, tensors: tensors.collect() }
    }

    /// The file, with the checksum of what is in it, computed here as ARCHITECTURE.md says.
    fn bytes(mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, (dtype, shape, bytes)) in &self.tensors {
            let shape = shape.iter().map(|size| size.to_string()).collect::<Vec<_>>().join(",");
            text.extend_from_slice(format!("{name}\0{dtype}\0{shape}\0").as_bytes());
            text.extend_from_slice(bytes);
        }
        self.metadata.entry("checksum".into()).or_insert_with(|| blake3::hash(&text).to_hex().to_string());
        let views = self.tensors.iter().map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("sizes agree"))
        });
        safetensors::serialize(views, Some(self.metadata)).unwrap()
    }
}

fn message(bytes: &[u8], program: &Program) -> String {
    Weights::from_bytes(bytes, program).err().expect("refused").to_string()
}

#[test]
fn a_file_from_elsewhere_is_read_and_written_back() {
    let program = sample().build().unwrap();
    let weights = Weights::from_bytes(&Loose::of(&program).bytes(), &program).unwrap();
    let again = Weights::from_bytes(&weights.to_bytes().unwrap(), &program).unwrap();
    for (name, data) in some_weights(&program) {
        assert_eq!((weights.get(&name), again.get(&name)), (Some(&data[..]), Some(&data[..])));
    }
    assert_eq!(again.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["bias", "gain", "kernel", "weight"]);
    assert!(weights.get("image").is_none() && weights.program() == program.hash());
}

#[test]
fn wide_rings_keep_64_bits() {
    let mut b = ProgramBuilder::new("wide", Ring::Pow2(64));
    let x = b.input("x", &[2], 8);
    let weight = b.parameter("weight", &[2], 8);
    b.bound(weight, 63);
    let y = b.node("y", op::Mul, &[x, weight]);
    b.output(y);
    let program = b.build().unwrap();
    let extremes = vec![i64::MAX, -i64::MAX];
    let weights = Weights::new(&program, [("weight".into(), extremes.clone())].into()).unwrap();
    let again = Weights::from_bytes(&weights.to_bytes().unwrap(), &program).unwrap();
    assert_eq!(again.get("weight"), Some(&extremes[..]));
    // -2^63 is in the ring but outside |v| < 2^63.
    let least = Weights::new(&program, [("weight".into(), vec![0, i64::MIN])].into());
    assert_eq!(
        least.err().unwrap().to_string(),
        "weight tensor 'weight': its integer at index 1 is outside the declared bound 2^63; compile the model again"
    );
}

#[test]
fn files_are_written_whole_and_for_their_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.weights.safetensors");
    let program = sample().build().unwrap();
    let weights = Weights::new(&program, some_weights(&program)).unwrap();
    weights.write(&path).unwrap();
    weights.write(&path).unwrap();
    assert_eq!(Weights::read(&path, &program).unwrap().get("bias"), weights.get("bias"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let gone = Weights::read(folder.path().join("gone"), &program).err().unwrap().to_string();
    assert!(gone.starts_with("cannot read weights '"), "{gone}");
    std::fs::write(&path, b"x").unwrap();
    let short = Weights::read(&path, &program).err().unwrap().to_string();
    assert!(short.starts_with("weights '") && short.contains("not a Covey weights file (too short)"), "{short}");
}

#[test]
fn weights_that_do_not_fit_the_program() {
    let program = sample().build().unwrap();
    let refused = |change: fn(&mut Loose)| {
        let mut loose = Loose::of(&program);
        change(&mut loose);
        message(&loose.bytes(), &program)
    };
    let tensor = |problem: &str| format!("weight tensor {problem}; compile the model again");
    assert_eq!(refused(|l| _ = l.tensors.remove("gain")), tensor("'gain': is missing"));
    assert_eq!(
        refused(|l| _ = l.tensors.insert("extra".into(), (Dtype::I32, vec![1], vec![0; 4]))),
        tensor("'extra': is not a parameter of this program")
    );
    assert_eq!(
        refused(|l| l.tensors.get_mut("bias").unwrap().0 = Dtype::F32),
        tensor("'bias': is of type F32 where Z_2^32 needs I32")
    );
    assert_eq!(
        refused(|l| l.tensors.get_mut("bias").unwrap().1 = vec![2, 2]),
        tensor("'bias': has shape [2, 2] where the program declares [4]")
    );
    assert_eq!(
        refused(|l| l.tensors.get_mut("bias").unwrap().2[4..8].copy_from_slice(&i32::MAX.to_le_bytes())),
        tensor("'bias': its integer at index 1 is outside the declared bound 2^30")
    );
    let mut values = some_weights(&program);
    values.get_mut("bias").unwrap().pop();
    let short = Weights::new(&program, values).err().unwrap().to_string();
    assert_eq!(short, tensor("'bias': holds 3 integers and not 4"));
    let mut values = some_weights(&program);
    values.insert("extra".into(), vec![]);
    let extra = Weights::new(&program, values).err().unwrap().to_string();
    assert_eq!(extra, tensor("'extra': is not a parameter of this program"));
    let none = Weights::new(&program, BTreeMap::new()).err().unwrap().to_string();
    assert_eq!(none, tensor("'kernel': is missing"));
}

#[test]
fn metadata_bind_the_file() {
    let program = sample().build().unwrap();
    let refused = |key: &str, value: Option<&str>| {
        let mut loose = Loose::of(&program);
        match value {
            Some(value) => _ = loose.metadata.insert(key.into(), value.into()),
            None => _ = loose.metadata.remove(key),
        }
        message(&loose.bytes(), &program)
    };
    let foreign = |reason: &str| {
        format!("this is not a Covey weights file ({reason}): use the .weights.safetensors that `covey compile` wrote")
    };
    assert_eq!(refused("format", None), foreign("its metadata do not say format=covey-weights"));
    assert_eq!(refused("version", Some("one")), foreign("its metadata name no version"));
    assert_eq!(refused("program", None), foreign("its metadata name no program"));
    assert_eq!(
        refused("version", Some("2")),
        "the weights file was made by a newer Covey (version 2, this build reads 1): upgrade Covey"
    );
    assert_eq!(
        refused("program", Some(&"ab".repeat(32))),
        format!(
            "these weights belong to program abababababab, this is {}: compile both again together",
            program.hash().short()
        )
    );
    let corrupted = "the weights file is corrupted: copy it again or compile the model again";
    assert_eq!(refused("checksum", Some("00")), corrupted);
    let mut bytes = Loose::of(&program).bytes();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(message(&bytes, &program), corrupted);
}

#[test]
fn files_that_are_no_safetensors() {
    let program = sample().build().unwrap();
    let reason = |bytes: &[u8]| {
        let message = message(bytes, &program);
        let (_, rest) = message.split_once("not a Covey weights file (").expect("its reason");
        rest.split_once("): use").expect("the way out").0.to_string()
    };
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        bytes
    };
    assert_eq!(reason(&[]), "too short");
    assert_eq!(reason(&[0xFF; 20]), "its header is longer than the file; it may be truncated");
    assert_eq!(reason(&file("{}", 1)), "its tensors and its size do not agree; it may be truncated");
    assert_eq!(reason(&file("[", 0)), "its header is malformed");
    // Offsets whose sum passes 2^64 must not wrap around to the size of the file.
    let huge: Vec<String> = (0..9u128)
        .map(|i| {
            let size = (1u128 << 61) - 1;
            let end = ((i + 1) * size).min(u64::MAX.into());
            format!("\"{i}\":{{\"dtype\":\"U8\",\"shape\":[{size}],\"data_offsets\":[{},{end}]}}", i * size)
        })
        .take(8)
        .collect();
    let huge = reason(&file(&format!("{{{}}}", huge.join(",")), 0));
    assert_eq!(huge, "its tensors and its size do not agree; it may be truncated");
    let good = Loose::of(&program).bytes();
    assert_eq!(reason(&good[..good.len() - 1]), "its tensors and its size do not agree; it may be truncated");
}
