//! Welch's t of measured times, over crops of their distribution.
//!
//! Times on a shared machine have a long tail of interrupts, which hides small differences. So the test is repeated on the fastest part
//! of all times, for a hundred parts; thresholds are set before by times that the test does not use.

use std::array;

/// Crops, besides the whole.
const CROPS: i32 = 100;
/// A crop needs as many times of a class.
const LEAST: u64 = 500;
/// t of two classes without any variance; also keeps it a number.
const MOST: f64 = 1e6;

/// Times of `N` classes, counted as they come.
pub struct Times<const N: usize> {
    thresholds: Vec<u64>,
    /// Between one threshold and the next: a crop is all of them up to its own.
    between: Vec<[Sums; N]>,
}

/// What mean and variance need, exactly.
#[derive(Clone, Copy, Default)]
struct Sums {
    count: u64,
    sum: u128,
    squares: u128,
}

/// How the times of two classes differ, in the crop where they differ most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Difference {
    /// Welch's t; positive if the first class takes longer.
    pub t: f64,
    /// The difference of the means.
    pub means: f64,
    /// The part of all times in the crop.
    pub part: f64,
}

impl<const N: usize> Times<N> {
    /// No times yet; `sample` sets the thresholds.
    pub fn new(mut sample: Vec<u64>) -> Self {
        sample.sort_unstable();
        // Denser towards the tail, as dudect has them: parts 0.07 to 0.999.
        let part = |crop: i32| 1.0 - 0.5f64.powf(10.0 * f64::from(crop + 1) / f64::from(CROPS));
        let mut thresholds: Vec<u64> =
            (0..CROPS).map(|crop| sample[(part(crop) * sample.len() as f64) as usize]).collect();
        thresholds.dedup();
        Times { between: vec![[Sums::default(); N]; thresholds.len() + 1], thresholds }
    }

    /// Counts a time of class `class`.
    pub fn add(&mut self, class: usize, time: u64) {
        let sums = &mut self.between[self.thresholds.partition_point(|&threshold| threshold < time)][class];
        sums.count += 1;
        sums.sum += u128::from(time);
        sums.squares += u128::from(time) * u128::from(time);
    }

    /// The largest difference of class `first` from `second` over all crops.
    pub fn difference(&self, first: usize, second: usize) -> Difference {
        let all = self.crops().last().map_or(0, |crop| crop[first].count + crop[second].count);
        let of = |crop: [Sums; N]| {
            let (a, b) = (crop[first], crop[second]);
            let part = (a.count + b.count) as f64 / all as f64;
            (a.count.min(b.count) >= LEAST).then(|| Difference { t: welch(a, b), means: a.mean() - b.mean(), part })
        };
        self.crops().filter_map(of).max_by(|a, b| a.t.abs().total_cmp(&b.t.abs())).unwrap_or_default()
    }

    /// The median over all classes.
    pub fn median(&self) -> u64 {
        let counts = self.crops().map(|crop| crop.iter().map(|sums| sums.count).sum::<u64>());
        let counts: Vec<u64> = counts.collect();
        let half = counts.last().map_or(0, |all| all / 2);
        let crop = counts.partition_point(|&count| count < half);
        self.thresholds[crop.min(self.thresholds.len() - 1)]
    }

    /// The standard error of the difference of the means in the crop of nine in ten times.
    pub fn error(&self, first: usize, second: usize) -> f64 {
        let all = self.crops().last().map_or(0, |crop| crop[first].count + crop[second].count);
        let crop = self.crops().find(|crop| 10 * (crop[first].count + crop[second].count) >= 9 * all);
        crop.map_or(f64::INFINITY, |crop| error(crop[first], crop[second]))
    }

    /// The sums of each crop, from the smallest to the whole.
    fn crops(&self) -> impl Iterator<Item = [Sums; N]> + '_ {
        self.between.iter().scan([Sums::default(); N], |crop, between| {
            *crop = array::from_fn(|class| crop[class] + between[class]);
            Some(*crop)
        })
    }
}

impl std::ops::Add for Sums {
    type Output = Sums;

    fn add(self, other: Sums) -> Sums {
        Sums { count: self.count + other.count, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }
}

impl Sums {
    fn mean(self) -> f64 {
        self.sum as f64 / self.count as f64
    }

    /// Variance of the mean.
    fn variance(self) -> f64 {
        let count = u128::from(self.count);
        // Whole numbers: nothing cancels.
        let squares = count * self.squares - self.sum * self.sum;
        squares as f64 / (count * count * (count - 1).max(1)) as f64
    }
}

fn error(a: Sums, b: Sums) -> f64 {
    (a.variance() + b.variance()).sqrt()
}

fn welch(a: Sums, b: Sums) -> f64 {
    let (means, error) = (a.mean() - b.mean(), error(a, b));
    if means == 0.0 { 0.0 } else { (means / error).clamp(-MOST, MOST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(times: &[u64]) -> Sums {
        let one = |&time: &u64| Sums { count: 1, sum: time.into(), squares: u128::from(time) * u128::from(time) };
        times.iter().map(one).fold(Sums::default(), |all, one| all + one)
    }

    /// Means 3 and 6, variances 2.5 and 10: t = -3 / sqrt(2.5 / 5 + 10 / 5).
    #[test]
    fn t_is_welchs() {
        let t = welch(sums(&[1, 2, 3, 4, 5]), sums(&[2, 4, 6, 8, 10]));
        assert!((t + 3.0 / 2.5f64.sqrt()).abs() < 1e-12, "{t}");
        assert_eq!(welch(sums(&[7, 7]), sums(&[7, 7])), 0.0);
        assert_eq!(welch(sums(&[7, 7]), sums(&[8, 8])), -MOST);
    }

    /// `shift` cycles between the classes; one time in a hundred is an interrupt's.
    fn times(shift: u64) -> Times<2> {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let mut time = |class: u64| 1000 + draw(100) + class * shift + if draw(100) == 0 { draw(1_000_000) } else { 0 };
        let mut times = Times::new((0..2000).map(|_| time(0)).collect());
        for index in 0..200_000 {
            let class = index % 2;
            times.add(class as usize, time(class));
        }
        times
    }

    #[test]
    fn a_difference_is_found_below_the_tail() {
        let crop = times(2).difference(1, 0);
        assert!(crop.t > 10.0 && crop.part < 0.995, "{crop:?}");
        let whole = times(2);
        let whole = whole.crops().last().expect("the whole");
        assert!(welch(whole[1], whole[0]).abs() < 4.5, "the tail hides it without crops");
    }

    #[test]
    fn none_is_found_where_there_is_none() {
        let same = times(0).difference(1, 0);
        assert!(same.t.abs() < 4.5, "{same:?}");
    }

    #[test]
    fn median_and_error_are_those_of_the_times() {
        let times = times(0);
        assert!((1045..=1055).contains(&times.median()), "{}", times.median());
        // A standard deviation of 100 / sqrt(12), over 90,000 times in either class of the crop, is at most 0.14.
        assert!((0.10..0.14).contains(&times.error(1, 0)), "{}", times.error(1, 0));
    }
}
