//! Programs: read, written again, planned for each protocol, and run in the clear on zeros where they are small.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use covey_program::{Program, Weights};
use covey_protocols::Options;
use covey_protocols::beaver::Beaver;
use covey_protocols::cost::CostModel;
use covey_protocols::quad::Quad;
use covey_protocols::trio::Trio;
use covey_protocols::two_party::TwoParty;
use covey_ring::{Tensor, Word};
use covey_runtime::clear::run_clear;
use covey_runtime::plan::plan;

use super::{Run, Target, line, pair};
use crate::corpus::Corpus;
use crate::mutate::{damage, damage_protobuf};
use crate::rng::Rng;

pub const PROGRAM: Target = Target { name: "program", mutate, run: Run::Here(run), seed, file: true };

/// Bytes before the payload: magic, version, a zero, the payload's hash.
const HEADER: usize = 40;
/// Work that takes long though it is right: only smaller programs are planned and run.
const MOST_ELEMENTS: usize = 1 << 12;
const MOST_WORK: usize = 1 << 22;

/// The program file of a payload, its hash right.
pub fn seal(payload: &[u8]) -> Vec<u8> {
    [b"COVEY\0\x01\0", &blake3::hash(payload).as_bytes()[..], payload].concat()
}

fn mutate(rng: &mut Rng, corpus: &Corpus) -> Vec<u8> {
    let (input, other) = pair(rng, corpus);
    let (Some(payload), Some(others)) = (input.get(HEADER..), other.get(HEADER..)) else {
        return damage(rng, input, other);
    };
    match rng.below(8) {
        0 => damage(rng, input, other),
        1 | 2 => seal(&damage(rng, payload, others)),
        _ => seal(&damage_protobuf(rng, payload, others)),
    }
}

fn run(folder: &Path, bytes: &[u8]) -> Result<(), String> {
    let path = folder.join("model.covey");
    line(std::fs::write(&path, bytes))?;
    let program = line(Program::read(&path))?;
    assert!(program.to_bytes() == bytes, "a program is written otherwise than it was read");
    assert!(!program.dump().is_empty());
    let program = Arc::new(program);
    if is_small(&program) {
        execute(&program)?;
        plans(&program)?;
    }
    Ok(())
}

fn is_small(program: &Program) -> bool {
    let elements = |id| program.value(id).elements();
    let work = |node: &covey_program::Node| {
        let operands = node.inputs.iter().map(|&id| elements(id));
        let outputs = node.outputs.iter().map(|&id| elements(id));
        operands.max().unwrap_or(0).saturating_mul(outputs.max().unwrap_or(0))
    };
    let window = |node: &covey_program::Node| {
        use covey_program::{Op, op};
        match &node.op {
            Op::Conv2d(op::Conv2d { window, .. })
            | Op::MaxPool(op::MaxPool { window })
            | Op::SumPool(op::SumPool { window }) => window.kernel[0] * window.kernel[1],
            _ => 1,
        }
    };
    program.values().iter().all(|value| value.elements() <= MOST_ELEMENTS)
        && program.nodes().iter().map(work).fold(0, usize::saturating_add) <= MOST_WORK
        && program.nodes().iter().map(window).max().unwrap_or(1) <= MOST_ELEMENTS
}

fn execute(program: &Arc<Program>) -> Result<(), String> {
    let zeros: BTreeMap<_, _> =
        program.parameters().map(|(_, value)| (value.name.clone(), vec![0; value.elements()])).collect();
    let weights = line(Weights::new(program, zeros))?;
    let inputs: Vec<Tensor<u64>> = program
        .inputs()
        .iter()
        .map(|&id| {
            let shape = program.value(id).full_shape(1);
            let elements = shape.iter().product();
            Tensor::new(shape, vec![0; elements])
        })
        .collect();
    line(run_clear(program, &weights, &inputs)).map(drop)
}

/// What it costs in every protocol.
fn plans(program: &Arc<Program>) -> Result<(), String> {
    fn all<W: Word>(program: &Arc<Program>) -> Result<(), String> {
        let options = Options::default();
        line(plan(program, CostModel::of::<Trio<W>>(), options, 1))?;
        line(plan(program, CostModel::of::<Quad<W>>(), options, 1))?;
        line(plan(program, CostModel::of::<TwoParty<W>>(), options, 1))?;
        line(plan(program, CostModel::of::<Beaver<W>>(), options, 1)).map(drop)
    }
    match program.ring().bits() {
        0..=32 => all::<u32>(program),
        _ => all::<u64>(program),
    }
}

/// The programs that the conformance suite keeps.
fn seed() -> Vec<(String, Vec<u8>)> {
    super::weights::goldens("covey")
}
