//! Inputs that parties keep as rows: what a row is of, its integers, and the runs that name rows in place of inputs.
//!
//! Of a program that carries values from run to run, such as a training job, a sample is a whole minibatch, and a row is one entry along
//! its first dimension. Of any other program a row is a sample.

use covey_operators::WholeNumbers;
use covey_program::{Program, Value, ValueId};
use covey_ring::{Tensor, Word, fixed};

use crate::RuntimeError;
use crate::data::{Input, range, refusal};

/// Elements of rows that are shared at a time, about: what a party holds of them in memory.
const PIECE: usize = 1 << 18;

/// What the rows of a program's inputs are.
#[derive(Clone, Debug, PartialEq)]
pub struct RowForm {
    inputs: Vec<RowInput>,
    of_sample: usize,
}

/// An input's part of a row.
#[derive(Clone, Debug, PartialEq)]
struct RowInput {
    id: ValueId,
    /// Of its elements.
    shape: Vec<usize>,
    /// Where its data are whole numbers.
    whole: Option<WholeNumbers>,
}

impl RowForm {
    /// The rows of `program`.
    ///
    /// # Errors
    /// If its inputs have no rows in common.
    pub fn of(program: &Program) -> Result<Self, RuntimeError> {
        let minibatches = !program.carried().is_empty();
        let mut of_sample = None;
        let mut inputs = Vec::with_capacity(program.inputs().len());
        for &id in program.inputs() {
            let value = program.value(id);
            let none = |why: &str| refusal(value, format!("{why}: '{}' takes no rows of data sets", program.name()));
            if !value.batched {
                return Err(none("is the same for all samples"));
            }
            let (shape, whole, rows) = match (minibatches, value.shape.split_first()) {
                (false, _) => (value.shape.clone(), value.whole.clone(), 1),
                (true, None) => return Err(none("has no dimension of rows")),
                (true, Some((&rows, shape))) => {
                    let whole = value.whole.as_ref().map(|whole| row_of(whole, rows));
                    let whole = whole.map(|row| row.ok_or_else(|| none("has rows of different kinds"))).transpose()?;
                    (shape.to_vec(), whole, rows)
                }
            };
            if *of_sample.get_or_insert(rows) != rows || rows == 0 {
                return Err(none("has another number of rows than an earlier input"));
            }
            inputs.push(RowInput { id, shape, whole });
        }
        let of_sample = of_sample.ok_or_else(|| RuntimeError::NoRows(program.name().into()))?;
        Ok(RowForm { inputs, of_sample })
    }

    /// Rows of a run over `batch` samples; `None` where they are more than can be counted.
    pub fn of_run(&self, batch: usize) -> Option<usize> {
        self.of_sample.checked_mul(batch)
    }

    /// How many of `rows` rows are shared at a time; the last time it may be fewer.
    pub fn piece(&self, rows: usize) -> usize {
        let of_row = self.elements().fold(0usize, usize::saturating_add).max(1);
        (PIECE / of_row).min(rows).max(1)
    }

    /// Elements of each input's part of a row, in the program's order.
    pub fn elements(&self) -> impl Iterator<Item = usize> {
        self.inputs.iter().map(|input| input.shape.iter().product())
    }

    /// Shapes of the inputs' parts of so many rows.
    pub fn shapes(&self, rows: usize) -> impl Iterator<Item = Vec<usize>> {
        self.inputs.iter().map(move |input| [&[rows], &input.shape[..]].concat())
    }

    /// How many rows `inputs` are, which must be what the program declares.
    ///
    /// # Errors
    /// A missing, unknown or misshapen input, or inputs of different numbers of rows.
    pub fn count(&self, program: &Program, inputs: &[Input]) -> Result<usize, RuntimeError> {
        let mut rows = None;
        if let Some((name, ..)) =
            inputs.iter().find(|(name, ..)| self.inputs.iter().all(|own| program.value(own.id).name != *name))
        {
            return Err(RuntimeError::Input { input: name.clone(), problem: "is no input of the program".into() });
        }
        for own in &self.inputs {
            let value = program.value(own.id);
            let (_, shape, data) = given(value, inputs)?;
            let due = own.data_shape();
            let fits = shape.split_first().is_some_and(|(_, of_row)| of_row == due);
            if !fits || shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) != Some(data.len()) {
                let due: Vec<String> = std::iter::once("N".into()).chain(due.iter().map(usize::to_string)).collect();
                return Err(refusal(value, format!("has shape {shape:?}, and its rows are [{}]", due.join(", "))));
            }
            if *rows.get_or_insert(shape[0]) != shape[0] {
                let before = rows.unwrap_or_default();
                return Err(refusal(value, format!("has {} rows where an earlier input has {before}", shape[0])));
            }
        }
        Ok(rows.unwrap_or_default())
    }

    /// Rows `first` to `first + count` of `inputs`, which [`RowForm::count`] has seen, as ring elements.
    ///
    /// # Errors
    /// A value that is not finite, outside the declared range or no class, named with its place.
    pub fn encode<W: Word>(
        &self,
        program: &Program,
        inputs: &[Input],
        (first, count): (usize, usize),
    ) -> Result<Vec<Tensor<W>>, RuntimeError> {
        let one = |own: &RowInput| {
            let value = program.value(own.id);
            let (_, _, data) = given(value, inputs)?;
            let of_row = own.data_shape().iter().product::<usize>();
            let data = data.get(first * of_row..(first + count) * of_row);
            let data = data.ok_or_else(|| refusal(value, "has fewer rows than its shape says".into()))?;
            let words = match &own.whole {
                None => fixed::encode(&value.name, data, value.scale, program.ring(), range(value))?,
                Some(whole) => {
                    let words = whole.encode(data, range(value), program.ring());
                    words.map_err(|problem| refusal(value, problem))?
                }
            };
            Ok(Tensor::new([&[count], &own.shape[..]].concat(), words))
        };
        self.inputs.iter().map(one).collect()
    }
}

impl RowInput {
    /// Dimensions of a row of the data.
    fn data_shape(&self) -> &[usize] {
        self.whole.as_ref().map_or(&self.shape, |whole| &whole.shape)
    }
}

/// The whole numbers of one of `rows` rows; `None` where rows differ.
fn row_of(whole: &WholeNumbers, rows: usize) -> Option<WholeNumbers> {
    let (&first, shape) = whole.shape.split_first()?;
    let of_row: usize = shape.iter().product();
    let classes = match &whole.classes[..] {
        [one] => vec![*one],
        all => all.get(..of_row)?.to_vec(),
    };
    let alike = whole.classes.len() == 1 || whole.classes.chunks(of_row.max(1)).all(|row| row == classes);
    (first == rows && alike).then(|| WholeNumbers { shape: shape.to_vec(), classes })
}

fn given<'a>(value: &Value, inputs: &'a [Input]) -> Result<&'a Input, RuntimeError> {
    inputs.iter().find(|(name, ..)| *name == value.name).ok_or_else(|| refusal(value, "is missing".into()))
}

#[cfg(test)]
mod tests {
    use covey_program::{ProgramBuilder, op};
    use covey_ring::Ring;

    use super::*;

    fn input(name: &str, shape: &[usize], data: &[f64]) -> Input {
        (name.into(), shape.to_vec(), data.to_vec())
    }

    #[test]
    fn rows_of_an_ordinary_program_are_samples() {
        let mut builder = ProgramBuilder::new("relu", Ring::Pow2(32));
        let x = builder.input("x", &[2, 3], 8);
        builder.bound(x, 9);
        let y = builder.node("relu", op::Relu, &[x]);
        builder.output(y);
        let program = builder.build().unwrap();
        let form = RowForm::of(&program).unwrap();
        assert_eq!((form.of_run(4), form.elements().collect::<Vec<_>>()), (Some(4), vec![6]));
        assert_eq!((form.piece(9), form.piece(1 << 20)), (9, (1 << 18) / 6));
        assert_eq!(form.shapes(5).collect::<Vec<_>>(), [[5, 2, 3]]);
        let data = input("x", &[2, 2, 3], &[0.0, 0.25, 0.5, 0.75, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(form.count(&program, std::slice::from_ref(&data)).unwrap(), 2);
        let words = form.encode::<u32>(&program, &[data], (0, 1)).unwrap();
        assert_eq!(
            (words[0].shape(), words[0].data()),
            (&[1, 2, 3][..], &[0, 64, 128, 192, 256, 256u32.wrapping_neg()][..])
        );
    }

    #[test]
    fn what_fits_no_row_is_refused_by_name() {
        let mut builder = ProgramBuilder::new("two", Ring::Pow2(32));
        let x = builder.input("x", &[2], 8);
        builder.bound(x, 9);
        let y = builder.input("y", &[2], 8);
        builder.bound(y, 9);
        let sum = builder.node("sum", op::Add, &[x, y]);
        builder.output(sum);
        let program = builder.build().unwrap();
        let form = RowForm::of(&program).unwrap();
        let refused = |inputs: &[Input], expected: &str| {
            let error = form.count(&program, inputs).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        };
        let y = input("y", &[1, 2], &[0.0, 0.0]);
        refused(std::slice::from_ref(&y), "'x' is missing");
        refused(&[input("z", &[1, 2], &[0.0; 2]), y.clone()], "'z' is no input");
        refused(&[input("x", &[2], &[0.0; 2]), y.clone()], "has shape [2], and its rows are [N, 2]");
        refused(&[input("x", &[1, 2], &[0.0; 3]), y.clone()], "has shape");
        refused(&[input("x", &[2, 2], &[0.0; 4]), y.clone()], "has 1 rows where an earlier input has 2");
        let inputs = [input("x", &[1, 2], &[0.0, f64::NAN]), y];
        assert_eq!(form.count(&program, &inputs).unwrap(), 1);
        assert!(form.encode::<u32>(&program, &inputs, (0, 1)).err().unwrap().to_string().contains("NaN at index 1"));
    }

    #[test]
    fn classes_of_a_row_are_those_of_its_place() {
        let whole =
            |shape: &[usize], classes: &[u32]| WholeNumbers { shape: shape.to_vec(), classes: classes.to_vec() };
        assert_eq!(row_of(&whole(&[4, 2], &[3]), 4), Some(whole(&[2], &[3])));
        assert_eq!(row_of(&whole(&[2, 2], &[3, 0, 3, 0]), 2), Some(whole(&[2], &[3, 0])));
        assert_eq!(row_of(&whole(&[2, 2], &[3, 0, 3, 1]), 2), None);
        assert_eq!(row_of(&whole(&[2, 2], &[3]), 4), None);
    }
}
