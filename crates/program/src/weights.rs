//! The secret parameters of a program, in a safetensors file that stays with their owner's client.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use covey_ring::Ring;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorView};
use zeroize::Zeroizing;

use crate::{Program, ProgramHash, Value, WeightsError, file};

const FORMAT: &str = "covey-weights";
const VERSION: &str = "1";
/// Bytes before the header: its length, little-endian.
const PREFIX: usize = 8;
/// Most bytes of a header; the safetensors crate's own limit.
const MAX_HEADER: usize = 100_000_000;

/// Every parameter and state of one program, as integers within their bounds. Overwritten with zeros when dropped.
///
/// Not `Debug`: weights are secret.
pub struct Weights {
    program: ProgramHash,
    ring: Ring,
    tensors: BTreeMap<String, Tensor>,
    checksum: String,
}

struct Tensor {
    shape: Vec<usize>,
    data: Zeroizing<Vec<i64>>,
}

impl Weights {
    /// The weights of `program` from row-major integers by value name, at the scales the program declares.
    pub fn new(program: &Program, tensors: BTreeMap<String, Vec<i64>>) -> Result<Weights, WeightsError> {
        let mut given: BTreeMap<String, Zeroizing<Vec<i64>>> =
            tensors.into_iter().map(|(name, data)| (name, Zeroizing::new(data))).collect();
        let mut tensors = BTreeMap::new();
        for (_, value) in program.parameters() {
            let data = given.remove(&value.name).ok_or_else(|| missing(value))?;
            if data.len() != value.elements() {
                let problem = format!("holds {} integers and not {}", data.len(), value.elements());
                return Err(WeightsError::Tensor { tensor: value.name.clone(), problem });
            }
            check_bound(value, &data)?;
            tensors.insert(value.name.clone(), Tensor { shape: value.shape.clone(), data });
        }
        match given.keys().next() {
            Some(name) => Err(unknown(name)),
            None => {
                let dtype = dtype_of(program.ring());
                let mut checksum = Checksum::default();
                tensors
                    .iter()
                    .for_each(|(name, tensor)| checksum.add(name, dtype, &tensor.shape, &tensor.encode(dtype)));
                Ok(Weights { program: program.hash(), ring: program.ring(), tensors, checksum: checksum.finish() })
            }
        }
    }

    /// Reads and checks the weights of `program`. Errors name the file and what is wrong with it.
    pub fn read(path: impl AsRef<Path>, program: &Program) -> Result<Weights, WeightsError> {
        let path = path.as_ref();
        let width = dtype_of(program.ring()).bitsize() as u64 / 8;
        let elements = program.parameters().map(|(_, value)| value.elements() as u64);
        let data = elements.fold(0u64, |sum, count| sum.saturating_add(count.saturating_mul(width)));
        let limit = data.saturating_add((PREFIX + MAX_HEADER) as u64);
        let bytes = file::read_bounded(path, limit)
            .map(Zeroizing::new)
            .map_err(|source| WeightsError::Read { path: path.into(), source })?;
        Weights::from_bytes(&bytes, program)
            .map_err(|source| WeightsError::File { path: path.into(), source: Box::new(source) })
    }

    /// Parses and checks the content of a weights file of `program`.
    pub fn from_bytes(bytes: &[u8], program: &Program) -> Result<Weights, WeightsError> {
        let (header, data) = split(bytes)?;
        check_metadata(header.metadata().as_ref(), program)?;
        let stored: BTreeMap<_, _> = header.tensors().into_iter().collect();
        let mut checksum = Checksum::default();
        for (name, info) in &stored {
            checksum.add(name, info.dtype, &info.shape, &data[info.data_offsets.0..info.data_offsets.1]);
        }
        let checksum = checksum.finish();
        let stated = header.metadata().as_ref().and_then(|metadata| metadata.get("checksum"));
        if stated != Some(&checksum) {
            return Err(WeightsError::Corrupted);
        }

        let dtype = dtype_of(program.ring());
        let mut tensors = BTreeMap::new();
        for (_, value) in program.parameters() {
            let info = stored.get(&value.name).ok_or_else(|| missing(value))?;
            let refuse = |problem: String| Err(WeightsError::Tensor { tensor: value.name.clone(), problem });
            if info.dtype != dtype {
                return refuse(format!("is of type {} where {} needs {dtype}", info.dtype, program.ring()));
            }
            if info.shape != value.shape {
                return refuse(format!("has shape {:?} where the program declares {:?}", info.shape, value.shape));
            }
            let integers = decode(&data[info.data_offsets.0..info.data_offsets.1], dtype);
            check_bound(value, &integers)?;
            tensors.insert(value.name.clone(), Tensor { shape: value.shape.clone(), data: integers });
        }
        match stored.keys().find(|name| !tensors.contains_key(*name)) {
            Some(name) => Err(unknown(name)),
            None => Ok(Weights { program: program.hash(), ring: program.ring(), tensors, checksum }),
        }
    }

    /// The content of a weights file.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, WeightsError> {
        let dtype = dtype_of(self.ring);
        let refuse = |error: safetensors::SafeTensorError| WeightsError::NotWeights(error.to_string());
        let encoded: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name, tensor, tensor.encode(dtype))).collect();
        let mut views = Vec::with_capacity(encoded.len());
        for (name, tensor, bytes) in &encoded {
            views.push((name.as_str(), TensorView::new(dtype, tensor.shape.clone(), bytes).map_err(refuse)?));
        }
        let metadata = [
            ("format", FORMAT.to_string()),
            ("version", VERSION.to_string()),
            ("program", self.program.to_string()),
            ("checksum", self.checksum.clone()),
        ];
        let metadata = metadata.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
        safetensors::serialize(views, Some(metadata)).map(Zeroizing::new).map_err(refuse)
    }

    /// Writes a weights file that its owner alone can read: beside `path` first, then renamed.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), WeightsError> {
        let path = path.as_ref();
        file::write_atomically(path, &self.to_bytes()?, true)
            .map_err(|source| WeightsError::Write { path: path.into(), source })
    }

    /// Hash of the program these weights belong to.
    pub fn program(&self) -> ProgramHash {
        self.program
    }

    /// blake3 of all tensors, as the file has it: equal for equal weights of one program.
    pub fn checksum(&self) -> &str {
        &self.checksum
    }

    /// The integers of the parameter or state called `name`, row-major; `None` if the program has none of that name.
    pub fn get(&self, name: &str) -> Option<&[i64]> {
        self.tensors.get(name).map(|tensor| tensor.data.as_slice())
    }

    /// Every tensor in name order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[i64])> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.data.as_slice()))
    }
}

impl Tensor {
    fn encode(&self, dtype: Dtype) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.data.len() * dtype.bitsize() / 8));
        match dtype {
            Dtype::I32 => self.data.iter().for_each(|&v| bytes.extend_from_slice(&(v as i32).to_le_bytes())),
            _ => self.data.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes())),
        }
        bytes
    }
}

fn decode(bytes: &[u8], dtype: Dtype) -> Zeroizing<Vec<i64>> {
    let (words, doubles) = (bytes.as_chunks::<4>().0, bytes.as_chunks::<8>().0);
    Zeroizing::new(match dtype {
        Dtype::I32 => words.iter().map(|&word| i32::from_le_bytes(word).into()).collect(),
        _ => doubles.iter().map(|&word| i64::from_le_bytes(word)).collect(),
    })
}

/// The type that holds the integers of a ring.
fn dtype_of(ring: Ring) -> Dtype {
    if ring.bits() <= 32 { Dtype::I32 } else { Dtype::I64 }
}

/// Header and tensor bytes of a safetensors file. Every tensor's offsets lie inside the bytes: the crate's own reader
/// adds the header's size to the last offset unchecked, so the sizes are compared here.
fn split(bytes: &[u8]) -> Result<(Metadata, &[u8]), WeightsError> {
    let refuse = |problem: &str| WeightsError::NotWeights(problem.to_string());
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>().ok_or_else(|| refuse("too short"))?;
    let size = usize::try_from(u64::from_le_bytes(*prefix)).ok().filter(|&size| size <= MAX_HEADER);
    let (header, data) = size
        .and_then(|size| rest.split_at_checked(size))
        .ok_or_else(|| refuse("its header is longer than the file; it may be truncated"))?;
    // The parser's own text may quote the header, so it is not told.
    let header: Metadata = serde_json::from_slice(header).map_err(|_| refuse("its header is malformed"))?;
    if header.data_len() != data.len() {
        return Err(refuse("its tensors and its size do not agree; it may be truncated"));
    }
    Ok((header, data))
}

fn check_metadata(metadata: Option<&HashMap<String, String>>, program: &Program) -> Result<(), WeightsError> {
    let field = |key: &str| metadata.and_then(|metadata| metadata.get(key)).map(String::as_str);
    if field("format") != Some(FORMAT) {
        return Err(WeightsError::NotWeights("its metadata do not say format=covey-weights".into()));
    }
    match field("version") {
        Some(VERSION) => {}
        Some(version) if version.parse::<u32>().is_ok_and(|version| version > 1) => {
            return Err(WeightsError::Newer { version: version.into() });
        }
        _ => return Err(WeightsError::NotWeights("its metadata name no version".into())),
    }
    let ours = program.hash();
    match field("program") {
        Some(theirs) if theirs == ours.to_string() => Ok(()),
        Some(theirs) if theirs.len() == 64 && theirs.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Err(WeightsError::OtherProgram { theirs: theirs[..12].into(), ours: ours.short() })
        }
        _ => Err(WeightsError::NotWeights("its metadata name no program".into())),
    }
}

fn check_bound(value: &Value, integers: &[i64]) -> Result<(), WeightsError> {
    match integers.iter().position(|v| v.unsigned_abs() >> value.bound.bits != 0) {
        Some(index) => Err(WeightsError::Tensor {
            tensor: value.name.clone(),
            problem: format!("its integer at index {index} is outside the declared bound 2^{}", value.bound.bits),
        }),
        None => Ok(()),
    }
}

fn missing(value: &Value) -> WeightsError {
    WeightsError::Tensor { tensor: value.name.clone(), problem: "is missing".into() }
}

fn unknown(name: &str) -> WeightsError {
    let tensor = crate::validate::shown(name);
    WeightsError::Tensor { tensor, problem: "is not a parameter of this program".into() }
}

/// blake3 over the tensors in name order, so that a flipped bit or a renamed tensor shows.
#[derive(Default)]
struct Checksum(blake3::Hasher);

impl Checksum {
    fn add(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        for field in [name, &dtype.to_string(), &shape.join(",")] {
            self.0.update(field.as_bytes()).update(&[0]);
        }
        self.0.update(bytes);
    }

    fn finish(&self) -> String {
        self.0.finalize().to_hex().to_string()
    }
}
