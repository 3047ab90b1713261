//! Inputs from real numbers to ring elements, checked before anything is run or sent; outputs as integers.

use covey_program::{Program, Value, ValueId};
use covey_ring::{Tensor, Word, fixed};

use crate::RuntimeError;
use crate::batch::check_batch;

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
}

impl Output {
    /// The output `id` of the program, of which `words` was received or computed.
    pub fn new<W: Word>(program: &Program, id: ValueId, words: &Tensor<W>) -> Self {
        let value = program.value(id);
        let integers = words.data().iter().map(|&word| program.ring().signed(word)).collect();
        Output { name: value.name.clone(), shape: words.shape().to_vec(), scale: value.scale, integers }
    }
}

/// The inputs in the program's order as ring elements, and the batch size.
///
/// # Errors
/// A missing, unknown or misshapen input, samples that differ in number, or a value that is not finite, outside the
/// declared range or no class, named with its place.
pub fn encode_inputs<W: Word>(program: &Program, inputs: &[Input]) -> Result<(Vec<Tensor<W>>, usize), RuntimeError> {
    let known =
        || program.inputs().iter().map(|&id| format!("'{}'", program.value(id).name)).collect::<Vec<_>>().join(", ");
    for (index, (name, ..)) in inputs.iter().enumerate() {
        let refuse = |problem: String| Err(RuntimeError::Input { input: name.clone(), problem });
        if !program.inputs().iter().any(|&id| program.value(id).name == *name) {
            return refuse(format!("is no input of the program: its inputs are {}", known()));
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
            return Err(refusal(value, format!("is missing: the program's inputs are {}", known())));
        };
        check_shape(value, shape, |samples| value.data_shape(samples), &mut batch)?;
        if shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) != Some(data.len()) {
            return Err(refusal(value, format!("holds {} values, which do not fill its shape {shape:?}", data.len())));
        }
        let words = match &value.whole {
            None => fixed::encode(&value.name, data, value.scale, program.ring(), range(value))?,
            Some(whole) => {
                whole.encode(data, range(value), program.ring()).map_err(|problem| refusal(value, problem))?
            }
        };
        let samples = shape.first().copied().filter(|_| value.batched).unwrap_or(1);
        tensors.push(Tensor::new(value.full_shape(samples), words));
    }
    let batch = batch.unwrap_or(1);
    check_batch(program, batch)?;
    Ok((tensors, batch))
}

/// The batch size of `inputs`, if they are what the program declares: right number, shapes and bounds.
pub(crate) fn check_inputs(program: &Program, inputs: &[Tensor<u64>]) -> Result<usize, RuntimeError> {
    let ids = program.inputs();
    if inputs.len() != ids.len() {
        let problem =
            format!("does not fit: {} inputs were given where '{}' takes {}", inputs.len(), program.name(), ids.len());
        let missing = ids.get(inputs.len()).or(ids.last());
        return Err(RuntimeError::Input {
            input: missing.map_or(String::new(), |id| program.value(*id).name.clone()),
            problem,
        });
    }
    let mut batch = None;
    for (&id, input) in ids.iter().zip(inputs) {
        let value = program.value(id);
        check_shape(value, input.shape(), |samples| value.full_shape(samples), &mut batch)?;
        let outside =
            |word: &&u64| program.ring().signed(**word).unsigned_abs().checked_shr(value.bound.bits) > Some(0);
        if input.data().iter().any(|word| outside(&word)) {
            let bits = value.bound.bits;
            let way_out = "scale the data or compile with a wider --input-range";
            return Err(refusal(value, format!("holds an integer outside its bound 2^{bits}: {way_out}")));
        }
    }
    Ok(batch.unwrap_or(1))
}

/// That `shape` is `due` for a number of samples, the same for all inputs.
fn check_shape(
    value: &Value,
    shape: &[usize],
    due: impl Fn(usize) -> Vec<usize>,
    batch: &mut Option<usize>,
) -> Result<(), RuntimeError> {
    let samples = if value.batched { shape.first().copied() } else { None };
    let due = due(samples.unwrap_or(1));
    if shape != due {
        let sizes = due.iter().skip(usize::from(value.batched)).map(usize::to_string);
        let declared: Vec<String> = value.batched.then(|| "N".to_string()).into_iter().chain(sizes).collect();
        return Err(refusal(value, format!("has shape {shape:?} and not [{}]", declared.join(", "))));
    }
    match (samples, *batch) {
        (Some(samples), Some(batch)) if samples != batch => {
            let problem = format!("has {samples} samples where an earlier input has {batch}: give the same number");
            Err(refusal(value, problem))
        }
        _ => {
            *batch = batch.or(samples);
            Ok(())
        }
    }
}

pub(crate) fn refusal(value: &Value, problem: String) -> RuntimeError {
    RuntimeError::Input { input: value.name.clone(), problem }
}

/// The real numbers an input may hold: its declared range, within the bound of its integers.
pub(crate) fn range(value: &Value) -> (f64, f64) {
    // What is rounded to the largest integer of so many bits, or less, has room.
    let largest = (2f64.powi(value.bound.bits as i32) - 0.5).next_down() / 2f64.powi(value.scale as i32);
    let (low, high) = value.range.unwrap_or((-largest, largest));
    (low.max(-largest), high.min(largest))
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
        builder.output(sum);
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
        refused(std::slice::from_ref(&y), "'x' is missing");
        refused(&[y.clone(), y.clone()], "is given twice");
        refused(&[input("z", &[1, 2], &[0.0; 2])], "'z' is no input of the program");
        refused(&[input("x", &[2], &[0.0; 2]), y.clone()], "and not [N, 2]");
        refused(&[input("x", &[1, 2], &[0.0; 3]), y.clone()], "do not fill");
        refused(&[input("x", &[2, 2], &[0.0; 4]), y.clone()], "earlier input has 2");
        refused(&[input("x", &[0, 2], &[]), input("y", &[0, 2], &[])], "batch is empty");
        refused(&[input("x", &[1, 2], &[0.0, f64::NAN]), y.clone()], "NaN at index 1");
        refused(&[input("x", &[1, 2], &[1.5, 0.0]), y.clone()], "1.5 at index 0, outside its declared range [-1, 1]");
        refused(&[input("x", &[1, 2], &[0.0; 2]), input("y", &[1, 2], &[2.0, 0.0])], "'y' holds 2 at index 0");
    }

    /// The compiler declares ranges as they are said, and bounds for what they are rounded to.
    #[test]
    fn the_end_of_a_range_is_taken_that_is_rounded_to_the_largest_integer() {
        let x = input("x", &[1, 2], &[0.0; 2]);
        let y = |number: f64| [x.clone(), input("y", &[1, 2], &[number, -number])];
        let (tensors, _) = encode_inputs::<u32>(&program(), &y(511.4 / 256.0)).unwrap();
        assert_eq!(tensors[1].data(), [511, 511u32.wrapping_neg()]);
        assert!(encode_inputs::<u32>(&program(), &y(511.5 / 256.0)).is_err());
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
            "input 'ids' holds 3 in sample 1 at [0]: give whole numbers from 0 to 2"
        );
        assert_eq!(refused(&[1, 2, 3], &[0.0; 6]), "input 'ids' has shape [1, 2, 3] and not [N, 2]");
    }
}
