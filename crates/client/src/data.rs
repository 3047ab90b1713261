//! Inputs from floats to ring elements, checked before anything is sent; outputs back to floats.

use covey_program::{Postprocess, Program, Value, ValueId};
use covey_ring::{Tensor, Word, fixed};

use crate::ClientError;

/// One input: name, shape of the data with the batch dimension, row-major values.
pub type Input = (String, Vec<usize>, Vec<f64>);

/// One output of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The program's name of it.
    pub name: String,
    /// Shape with the batch dimension.
    pub shape: Vec<usize>,
    /// Fractional bits of `integers`.
    pub scale: u32,
    /// The result as signed integers, row-major, before any postprocessing.
    pub integers: Vec<i64>,
    /// The result as real numbers, after the postprocessing the program declares (softmax).
    pub values: Vec<f64>,
}

/// The inputs in the program's order as ring elements, and the batch size.
///
/// # Errors
/// A missing, unknown or misshapen input, samples that differ in number, or a value that is not finite, outside the
/// declared range or no class, named with its place.
pub(crate) fn encode_inputs<W: Word>(
    program: &Program,
    inputs: &[Input],
) -> Result<(Vec<Tensor<W>>, usize), ClientError> {
    let known =
        || program.inputs().iter().map(|&id| format!("'{}'", program.value(id).name)).collect::<Vec<_>>().join(", ");
    for (index, (name, ..)) in inputs.iter().enumerate() {
        let refuse = |problem: String| Err(ClientError::Input { input: name.clone(), problem });
        if !program.inputs().iter().any(|&id| program.value(id).name == *name) {
            return refuse(format!("the program has no such input: its inputs are {}", known()));
        }
        if inputs[..index].iter().any(|(earlier, ..)| earlier == name) {
            return refuse("is given twice: give each input once".into());
        }
    }
    let mut batch = None;
    let mut tensors = Vec::with_capacity(inputs.len());
    for &id in program.inputs() {
        let value = program.value(id);
        let Some((_, shape, data)) = inputs.iter().find(|(name, ..)| *name == value.name) else {
            let problem = format!("is missing: the program's inputs are {}", known());
            return Err(ClientError::Input { input: value.name.clone(), problem });
        };
        check_shape(value, shape, data.len(), &mut batch)?;
        let words = match &value.whole {
            None => fixed::encode(&value.name, data, value.scale, program.ring(), range(value))?,
            Some(whole) => whole
                .encode(data, range(value), program.ring())
                .map_err(|problem| ClientError::Input { input: value.name.clone(), problem })?,
        };
        let samples = shape.first().copied().filter(|_| value.batched).unwrap_or(1);
        tensors.push(Tensor::new(value.full_shape(samples), words));
    }
    let batch = batch.unwrap_or(1);
    check_batch(program, batch)?;
    Ok((tensors, batch))
}

/// Refuses a batch no run can hold.
pub(crate) fn check_batch(program: &Program, batch: usize) -> Result<(), ClientError> {
    let limit = covey_runtime::batch_limit(program);
    match batch {
        0 => Err(ClientError::Request("the batch is empty: give at least one sample".into())),
        _ if batch > limit => Err(ClientError::Request(format!(
            "the batch has {batch} samples and '{}' takes at most {limit} in one run: split it",
            program.name()
        ))),
        _ => Ok(()),
    }
}

fn check_shape(value: &Value, shape: &[usize], len: usize, batch: &mut Option<usize>) -> Result<(), ClientError> {
    let refuse = |problem: String| Err(ClientError::Input { input: value.name.clone(), problem });
    let samples = if value.batched { shape.first().copied() } else { None };
    let due = value.data_shape(samples.unwrap_or(1));
    if shape != due {
        let sizes = due.iter().skip(usize::from(value.batched)).map(usize::to_string);
        let declared: Vec<String> = value.batched.then(|| "N".to_string()).into_iter().chain(sizes).collect();
        return refuse(format!("has shape {shape:?} and not [{}]", declared.join(", ")));
    }
    if shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) != Some(len) {
        return refuse(format!("holds {len} values, which do not fill its shape {shape:?}"));
    }
    match (samples, *batch) {
        (Some(samples), Some(batch)) if samples != batch => {
            refuse(format!("has {samples} samples where an earlier input has {batch}: give the same number"))
        }
        (Some(samples), _) => {
            *batch = Some(samples);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The real numbers an input may hold: its declared range, within the bound of its integers.
fn range(value: &Value) -> (f64, f64) {
    let largest = (2f64.powi(value.bound.bits as i32) - 1.0) / 2f64.powi(value.scale as i32);
    let (low, high) = value.range.unwrap_or((-largest, largest));
    (low.max(-largest), high.min(largest))
}

/// What was received for output number `index` of the program.
pub(crate) fn decode_output<W: Word>(program: &Program, index: usize, id: ValueId, words: &Tensor<W>) -> Output {
    let value = program.value(id);
    let mut values = fixed::decode(words.data(), value.scale, program.ring());
    if program.postprocess().get(index) == Some(&Postprocess::Softmax)
        && let Some(&classes) = words.shape().last()
        && classes > 0
    {
        values.chunks_mut(classes).for_each(softmax);
    }
    Output {
        name: value.name.clone(),
        shape: words.shape().to_vec(),
        scale: value.scale,
        integers: words.data().iter().map(|&word| program.ring().signed(word)).collect(),
        values,
    }
}

fn softmax(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|v| *v = (*v - largest).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= sum);
}

#[cfg(test)]
mod tests {
    use covey_program::{ProgramBuilder, op};
    use covey_ring::Ring;

    use super::*;

    fn program() -> Program {
        let mut builder = ProgramBuilder::new("two", Ring::Pow2(32));
        let x = builder.input("x", &[2], 8);
        builder.range(x, -1.0, 1.0);
        builder.bound(x, 9);
        let y = builder.input("y", &[2], 8);
        builder.bound(y, 9);
        let sum = builder.node("sum", op::Add, &[x, y]);
        builder.output_with(sum, Postprocess::Softmax);
        builder.build().unwrap()
    }

    fn input(name: &str, shape: &[usize], data: &[f64]) -> Input {
        (name.into(), shape.to_vec(), data.to_vec())
    }

    #[test]
    fn inputs_are_taken_by_name_in_the_programs_order() {
        let inputs = [input("y", &[1, 2], &[0.5, 0.25]), input("x", &[1, 2], &[1.0, -1.0])];
        let (tensors, batch) = encode_inputs::<u32>(&program(), &inputs).unwrap();
        assert_eq!(batch, 1);
        assert_eq!(tensors[0].data(), [256, 256u32.wrapping_neg()]);
        assert_eq!(tensors[1].data(), [128, 64]);
    }

    #[test]
    fn bad_inputs_are_refused_by_name() {
        let refused = |inputs: &[Input], expect: &str| {
            let message = encode_inputs::<u32>(&program(), inputs).err().expect(expect).to_string();
            assert!(message.contains(expect) && !message.contains('\n'), "{message}");
        };
        let y = input("y", &[1, 2], &[0.0, 0.0]);
        refused(std::slice::from_ref(&y), "'x': is missing");
        refused(&[y.clone(), y.clone()], "is given twice");
        refused(&[input("z", &[1, 2], &[0.0; 2])], "'z': the program has no such input");
        refused(&[input("x", &[2], &[0.0; 2]), y.clone()], "and not [N, 2]");
        refused(&[input("x", &[1, 2], &[0.0; 3]), y.clone()], "do not fill");
        refused(&[input("x", &[2, 2], &[0.0; 4]), y.clone()], "earlier input has 2");
        refused(&[input("x", &[0, 2], &[]), input("y", &[0, 2], &[])], "batch is empty");
        refused(&[input("x", &[1, 2], &[0.0, f64::NAN]), y.clone()], "NaN at index 1");
        refused(&[input("x", &[1, 2], &[1.5, 0.0]), y.clone()], "1.5 at index 0, outside its declared range [-1, 1]");
        refused(&[input("x", &[1, 2], &[0.0; 2]), input("y", &[1, 2], &[2.0, 0.0])], "'y' holds 2 at index 0");
    }

    #[test]
    fn whole_numbers_are_shared_one_hot() {
        let mut builder = ProgramBuilder::new("lookup", Ring::Pow2(32));
        let ids = builder.one_hot("ids", &[2], 3);
        let table = builder.parameter("table", &[3, 4], 8);
        let rows = builder.node("rows", op::Dense, &[ids, table]);
        builder.output(rows);
        let program = builder.build().unwrap();
        let (tensors, batch) = encode_inputs::<u32>(&program, &[input("ids", &[2, 2], &[2.0, 0.0, 1.0, 1.0])]).unwrap();
        assert_eq!((batch, tensors[0].shape()), (2, &[2, 2, 3][..]));
        assert_eq!(tensors[0].data(), [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0]);
        let refused = |shape: &[usize], data: &[f64]| {
            encode_inputs::<u32>(&program, &[input("ids", shape, data)]).err().expect("a refusal").to_string()
        };
        assert_eq!(
            refused(&[2, 2], &[0.0, 0.0, 3.0, 0.0]),
            "input 'ids': holds 3 in sample 1 at [0]: give whole numbers from 0 to 2"
        );
        assert_eq!(refused(&[1, 2, 3], &[0.0; 6]), "input 'ids': has shape [1, 2, 3] and not [N, 2]");
    }

    #[test]
    fn softmax_touches_values_only() {
        let program = program();
        let words = Tensor::new([1, 2], vec![0u32, 256]);
        let output = decode_output(&program, 0, program.outputs()[0], &words);
        assert_eq!(output.integers, [0, 256]);
        assert!((output.values[1] - 1.0 / (1.0 + (-1f64).exp())).abs() < 1e-12);
        assert!((output.values.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
