//! Carry circuits, apart from any protocol: which ranges of bits combine in which round.

pub mod digits;
pub mod polynomial;

use std::str::FromStr;

/// How comparisons, exact shifts and ReLUs are done. The first four fuse a ReLU with the shift and the product before it; the
/// last three keep them apart, and name the carry circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Adder {
    /// Of all fused forms and digit trees, for each gate the fastest on the network in the options.
    #[default]
    Auto,
    /// Fewest bytes on all links: for local networks.
    FewestBytes,
    /// Two rounds fewer for some bytes more: for wide-area networks.
    Balanced,
    /// Fewest rounds and fewest online bytes: for wide-area networks where preprocessing is sent ahead, and small layers.
    FewestRounds,
    /// Digit trees, gates apart.
    Digits,
    /// A balanced tree over single bits: depth ceil(log2 bits).
    LogDepth,
    /// Bit after bit: depth bits - 1, one AND a bit.
    Ripple,
}

/// A name that no adder has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("adder '{0}' is unknown: use auto, fewest-bytes, balanced, fewest-rounds, digits, log-depth or ripple")]
pub struct UnknownAdder(pub String);

impl FromStr for Adder {
    type Err = UnknownAdder;

    fn from_str(name: &str) -> Result<Self, UnknownAdder> {
        let known = Adder::ALL.into_iter().find(|adder| adder.name() == name);
        known.ok_or_else(|| UnknownAdder(name.to_string()))
    }
}

impl Adder {
    /// All of them.
    pub const ALL: [Adder; 7] = [
        Adder::Auto,
        Adder::FewestBytes,
        Adder::Balanced,
        Adder::FewestRounds,
        Adder::Digits,
        Adder::LogDepth,
        Adder::Ripple,
    ];

    /// Name in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Adder::Auto => "auto",
            Adder::FewestBytes => "fewest-bytes",
            Adder::Balanced => "balanced",
            Adder::FewestRounds => "fewest-rounds",
            Adder::Digits => "digits",
            Adder::LogDepth => "log-depth",
            Adder::Ripple => "ripple",
        }
    }

    /// Whether a ReLU runs in one gate with the shift and the product before it.
    pub fn fuses(self) -> bool {
        matches!(self, Adder::Auto | Adder::FewestBytes | Adder::Balanced | Adder::FewestRounds)
    }

    /// Whether comparisons go by digits rather than by single bits.
    pub fn has_digits(self) -> bool {
        self.fuses() || self == Adder::Digits
    }
}

/// One combination of a higher with a lower range of bits:
/// generate = g_high ⊕ p_high·g_low, propagate = p_high·p_low.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// Range with the higher bits.
    pub high: usize,
    /// Range with the lower bits.
    pub low: usize,
    /// The combined range.
    pub out: usize,
    /// Whether a later combination needs the propagate bit.
    pub propagate: bool,
}

/// A carry circuit over `bits` bits. Ranges `0..bits` are the single bits, least significant first; each combination adds
/// one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarryCircuit {
    /// Bits summed over.
    pub bits: usize,
    /// Combinations by round; those of a round are independent.
    pub levels: Vec<Vec<Combine>>,
    /// Ranges whose generate bits are the result: the carry out of bits `0..=i` for each i asked for, ascending.
    pub outputs: Vec<usize>,
    /// Total number of ranges.
    pub ranges: usize,
}

impl CarryCircuit {
    /// The carry out of all `bits` bits, at least one: rippled, or else by a balanced tree.
    pub fn carry_out(bits: usize, adder: Adder) -> Self {
        let mut circuit = CarryCircuit { bits, levels: Vec::new(), outputs: Vec::new(), ranges: bits };
        let mut row: Vec<usize> = (0..bits).collect();
        match adder {
            Adder::Ripple => {
                for high in 1..bits {
                    let out = circuit.push_level(vec![(high, row[0])]);
                    row[0] = out[0];
                }
            }
            _ => {
                while row.len() > 1 {
                    // An odd range out stays at the top, where it waits at no cost.
                    let pairs = row.chunks_exact(2).map(|pair| (pair[1], pair[0])).collect();
                    let rest = row.chunks_exact(2).remainder().to_vec();
                    row = circuit.push_level(pairs);
                    row.extend(rest);
                }
            }
        }
        circuit.outputs = vec![row[0]];
        circuit.mark_propagates();
        circuit
    }

    /// The carry out of the `low` lowest of `bits` bits, if there are such, and that out of all: balanced trees, the upper bits
    /// waiting for nothing.
    pub fn carry_out_above(bits: usize, low: usize) -> Self {
        let mut circuit = CarryCircuit { bits, levels: Vec::new(), outputs: Vec::new(), ranges: bits };
        let first = if low == 0 { bits } else { low };
        let (mut row, mut upper): (Vec<usize>, Vec<usize>) = ((0..first).collect(), (first..bits).collect());
        let pairs = |row: &[usize]| row.chunks_exact(2).map(|pair| (pair[1], pair[0])).collect::<Vec<_>>();
        while row.len() + upper.len() > 1 {
            if row.len() == 1 && low > 0 && circuit.outputs.is_empty() {
                circuit.outputs.push(row[0]);
            }
            if row.len() == 1 {
                row.append(&mut upper);
            }
            let (first, second) = (pairs(&row), pairs(&upper));
            let outs = circuit.push_level([&first[..], &second].concat());
            let (joined, rest) = outs.split_at(first.len());
            row = [joined, row.chunks_exact(2).remainder()].concat();
            upper = [rest, upper.chunks_exact(2).remainder()].concat();
        }
        circuit.finish_above(low, row[0])
    }

    /// The same, bit after bit.
    pub fn carry_out_rippled(bits: usize, low: usize) -> Self {
        let mut circuit = CarryCircuit { bits, levels: Vec::new(), outputs: Vec::new(), ranges: bits };
        let mut below = 0;
        for high in 1..bits {
            if high == low {
                circuit.outputs.push(below);
            }
            below = circuit.push_level(vec![(high, below)])[0];
        }
        circuit.finish_above(low, below)
    }

    fn finish_above(mut self, low: usize, all: usize) -> Self {
        if low == self.bits {
            self.outputs = vec![all];
        }
        self.outputs.push(all);
        self.mark_propagates();
        self
    }

    /// The carries out of bits `0..=i` for every i below `bits`: rippled, or else by a balanced tree.
    pub fn carries(bits: usize, adder: Adder) -> Self {
        let mut circuit = CarryCircuit { bits, levels: Vec::new(), outputs: Vec::new(), ranges: bits };
        let mut prefix: Vec<usize> = (0..bits).collect();
        match adder {
            Adder::Ripple => {
                for high in 1..bits {
                    prefix[high] = circuit.push_level(vec![(high, prefix[high - 1])])[0];
                }
            }
            // Sklansky's prefix network: in round r, the upper half of each block of 2^(r+1) takes in the lower half's prefix.
            _ => {
                let mut half = 1;
                while half < bits {
                    let upper: Vec<usize> = (0..bits).filter(|i| i & half != 0).collect();
                    let pairs = upper.iter().map(|&i| (prefix[i], prefix[(i & !(half - 1)) - 1])).collect();
                    for (i, out) in upper.iter().zip(circuit.push_level(pairs)) {
                        prefix[*i] = out;
                    }
                    half *= 2;
                }
            }
        }
        circuit.outputs = prefix;
        circuit.mark_propagates();
        circuit
    }

    fn push_level(&mut self, pairs: Vec<(usize, usize)>) -> Vec<usize> {
        let first = self.ranges;
        self.ranges += pairs.len();
        let outs: Vec<usize> = (first..self.ranges).collect();
        let combine = |((high, low), &out): ((usize, usize), &usize)| Combine { high, low, out, propagate: false };
        self.levels.push(pairs.into_iter().zip(&outs).map(combine).collect());
        outs
    }

    /// A propagate bit is needed where its range is the high part of a combination, or the low part of one whose
    /// propagate bit is needed.
    fn mark_propagates(&mut self) {
        let mut needed = vec![false; self.ranges];
        for level in self.levels.iter_mut().rev() {
            for combine in level.iter_mut() {
                combine.propagate = needed[combine.out];
                needed[combine.high] = true;
                needed[combine.low] |= combine.propagate;
            }
        }
    }

    /// Ranges whose generate bit some combination multiplies or that are results: those must be shared as a product's operand.
    /// A leaf that is only ever a high part can stay a sum of local terms.
    pub fn multiplied(&self) -> Vec<bool> {
        let mut out = vec![false; self.ranges];
        for combine in self.levels.iter().flatten() {
            out[combine.low] = true;
        }
        for &output in &self.outputs {
            out[output] = true;
        }
        out
    }

    /// Single-bit ANDs.
    pub fn ands(&self) -> usize {
        self.levels.iter().flatten().map(|c| 1 + usize::from(c.propagate)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(circuit: &CarryCircuit, x: u64, y: u64) -> Vec<bool> {
        let mut g = vec![false; circuit.ranges];
        let mut p = vec![None; circuit.ranges];
        for i in 0..circuit.bits {
            g[i] = x >> i & y >> i & 1 == 1;
            p[i] = Some((x ^ y) >> i & 1 == 1);
        }
        for combine in circuit.levels.iter().flatten() {
            let high = p[combine.high].expect("marked");
            g[combine.out] = g[combine.high] ^ (high & g[combine.low]);
            p[combine.out] = combine.propagate.then(|| high & p[combine.low].expect("marked"));
        }
        circuit.outputs.iter().map(|&o| g[o]).collect()
    }

    #[test]
    fn carries_are_those_of_addition() {
        for adder in [Adder::LogDepth, Adder::Ripple] {
            for bits in 1..=6usize {
                for x in 0..1u64 << bits {
                    for y in 0..1u64 << bits {
                        let expected = |i: usize| {
                            let mask = (2u64 << i) - 1;
                            (x & mask) + (y & mask) > mask
                        };
                        let all: Vec<bool> = (0..bits).map(expected).collect();
                        assert_eq!(run(&CarryCircuit::carries(bits, adder), x, y), all, "{adder:?} {x}+{y}");
                        assert_eq!(run(&CarryCircuit::carry_out(bits, adder), x, y), [expected(bits - 1)]);
                    }
                }
            }
        }
    }

    #[test]
    fn carries_over_and_below() {
        for bits in 1..=7usize {
            for low in 0..=bits {
                for circuit in [CarryCircuit::carry_out_above(bits, low), CarryCircuit::carry_out_rippled(bits, low)] {
                    assert_eq!(circuit.levels.iter().flatten().count(), bits - 1);
                    for (x, y) in (0..1u64 << bits).flat_map(|x| (0..1u64 << bits).map(move |y| (x, y))) {
                        let carry = |bits: usize| {
                            let low = (1 << bits) - 1;
                            ((x & low) + (y & low)) >> bits == 1
                        };
                        let due = if low == 0 { vec![carry(bits)] } else { vec![carry(low), carry(bits)] };
                        assert_eq!(run(&circuit, x, y), due, "{bits} bits, {low} low");
                    }
                }
            }
        }
        assert_eq!(CarryCircuit::carry_out_above(18, 6).levels.len(), 5);
    }

    #[test]
    fn depths_and_sizes() {
        let tree = CarryCircuit::carry_out(31, Adder::LogDepth);
        assert_eq!((tree.levels.len(), tree.ands()), (5, 30 + 25));
        let ripple = CarryCircuit::carry_out(31, Adder::Ripple);
        assert_eq!((ripple.levels.len(), ripple.ands()), (30, 30));
        assert_eq!(CarryCircuit::carries(64, Adder::LogDepth).levels.len(), 6);
    }
}
