//! Dense layers: `x · w`. Weights lie as they came: one sample reads them once, at the speed of memory; many samples pack
//! them as they go, at a cost that the samples share.

use covey_ring::Word;

use super::{Chunk, Part};
use crate::PrgStream;
use crate::gemm::{FEW_ROWS, Sizes, add_product};
use crate::scratch::{Scratch, Use};

/// The weight of a dense layer.
pub(super) struct Weight<W> {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) parts: Vec<Part<W>>,
}

/// Words made from a generator at once, for a few samples and for many: within the second-level cache, and deep enough for
/// the kernels.
const FEW: usize = 32 << 10;
const MANY: usize = 128 << 10;

impl<W: Word> Weight<W> {
    pub(super) fn new(inputs: usize, outputs: usize, parts: Vec<Part<W>>) -> Self {
        let fit = parts.iter().all(|part| match part {
            Part::Words(words) => words.len() == inputs * outputs,
            Part::Stream(_) => true,
        });
        assert!(fit, "the size of a weight");
        Weight { inputs, outputs, parts }
    }

    pub(super) fn bytes(&self) -> usize {
        let bytes = |part: &Part<W>| match part {
            Part::Words(words) => size_of_val(&words[..]),
            Part::Stream(_) => 0,
        };
        self.parts.iter().map(bytes).sum()
    }

    pub(super) fn words(&self, index: usize) -> Option<&[W]> {
        match self.parts.get(index)? {
            Part::Words(words) => Some(words),
            Part::Stream(_) => None,
        }
    }

    pub(super) fn product(&self, batch: usize, xs: &[&[W]], chunk: &Chunk, out: &mut [W]) {
        let (inputs, outputs) = (self.inputs, self.outputs);
        assert!(chunk.rows.end <= batch && chunk.run.end <= outputs, "linear map: sizes do not match");
        let (m, n) = (chunk.rows.len(), chunk.run.len());
        out.fill(W::ZERO);
        if inputs == 0 {
            return;
        }
        let sizes = Sizes { m, n, k: inputs, a: inputs, b: outputs, c: n };
        let (mut x_words, mut w_words) = (Vec::new(), Vec::new());
        for (x, part) in xs.iter().zip(&self.parts) {
            let x = &x[chunk.rows.start * inputs..chunk.rows.end * inputs];
            match part {
                Part::Words(w) => {
                    x_words.push(x);
                    w_words.push(&w[chunk.run.start..]);
                }
                Part::Stream(streams) => stream(sizes, x, streams, chunk.run.start, out),
            }
        }
        add_product(sizes, &x_words, &w_words, out);
    }
}

/// `out += x · w` for the columns from `first` of a weight that is drawn as it is needed, some rows at a time.
fn stream<W: Word>(sizes: Sizes, x: &[W], streams: &[PrgStream], first: usize, out: &mut [W]) {
    let Sizes { m, n, k, b: outputs, .. } = sizes;
    let rows =
        if m <= FEW_ROWS { (FEW / n).max(1).next_multiple_of(8) } else { (MANY / n).max(1).next_multiple_of(64) };
    let rows = rows.min(k);
    let mut scratch = Scratch::new(Use::Stream, rows * n * W::BYTES);
    let words = &mut scratch.words::<W>()[..rows * n];
    for start in (0..k).step_by(rows) {
        let rows = rows.min(k - start);
        let words = &mut words[..rows * n];
        if n == outputs {
            PrgStream::fill_sum(streams, start * outputs, words);
        } else {
            for (row, words) in words.chunks_exact_mut(n).enumerate() {
                PrgStream::fill_sum(streams, (start + row) * outputs + first, words);
            }
        }
        add_product(Sizes { k: rows, b: n, ..sizes }, &[&x[start..]], &[words], out);
    }
}
