//! Inputs of whole numbers: how a client writes token ids and categories as what it shares.

use covey_ring::{Ring, Word};

/// The data of an input are whole numbers, and its value holds them one-hot or as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeNumbers {
    /// Dimensions of one sample of the data.
    pub shape: Vec<usize>,
    /// How many classes each number has, row-major; a single entry is for all. Of n classes the value holds n elements,
    /// 1 at the number's place and 0 elsewhere; of 0 the number itself.
    pub classes: Vec<u32>,
}

impl WholeNumbers {
    /// Numbers in one sample of the data.
    pub fn numbers(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether some number is written one-hot.
    pub fn one_hot(&self) -> bool {
        self.classes.iter().any(|&classes| classes > 0)
    }

    /// Elements of one sample of the value; `None` where they are more than a machine can count.
    pub fn elements(&self) -> Option<usize> {
        let width = |&classes: &u32| usize::try_from(classes.max(1)).ok();
        match &self.classes[..] {
            [classes] => width(classes)?.checked_mul(self.numbers()),
            all => all.iter().try_fold(0usize, |sum, classes| sum.checked_add(width(classes)?)),
        }
    }

    /// The elements of the value for `data`, whole samples of it one after another. `range` is where numbers without
    /// classes lie.
    ///
    /// # Errors
    /// The first number that is not whole, negative where it has classes, not below them, or outside the range: with the
    /// sample and the place in it.
    pub fn encode<W: Word>(&self, data: &[f64], (low, high): (f64, f64), ring: Ring) -> Result<Vec<W>, String> {
        let numbers = self.numbers().max(1);
        let samples = data.len().div_ceil(numbers);
        let mut words = Vec::with_capacity(samples.saturating_mul(self.elements().unwrap_or(0)));
        for (index, &number) in data.iter().enumerate() {
            let place = index % numbers;
            let classes = match &self.classes[..] {
                [classes] => *classes,
                all => all.get(place).copied().unwrap_or(0),
            };
            let (least, most) = if classes == 0 { (low, high) } else { (0.0, f64::from(classes) - 1.0) };
            // Written so that NaN fails.
            if !(number.fract() == 0.0 && least <= number && number <= most) {
                let sample = index / numbers;
                return Err(format!(
                    "holds {number} in sample {sample}{}: give whole numbers from {least} to {most}",
                    self.describe(place)
                ));
            }
            if classes == 0 {
                words.push(ring.wrap(number as i128));
            } else {
                // Each class is compared, so that no address depends on the number.
                words.extend((0..classes).map(|class| ring.wrap::<W>(i128::from(f64::from(class) == number))));
            }
        }
        Ok(words)
    }

    /// Where in a sample a number stands, for a message.
    fn describe(&self, mut place: usize) -> String {
        if self.shape.is_empty() {
            return String::new();
        }
        let mut indices: Vec<usize> = Vec::with_capacity(self.shape.len());
        for &size in self.shape.iter().rev() {
            indices.push(place % size.max(1));
            place /= size.max(1);
        }
        indices.reverse();
        format!(" at {indices:?}")
    }
}
