//! The combinations of the openings of a product of two secret matrices.

use covey_kernels::{elementwise, gemm};
use covey_ring::Word;

use super::{COLUMNS, Component, Fold, MESSAGES, challenges, components, verified_by_product};
use crate::api::MatmulShape;
use crate::masked::pieces::piece_of;
use crate::quad::share::{Arith, Role};
use crate::randomness::DrawKeys;

/// [`Fold`] of a product of two secret matrices.
pub(in crate::quad) struct FoldedProduct<W> {
    shape: MatmulShape,
    challenges: [Option<Vec<W>>; 2],
    sums: [Vec<W>; 2],
}

impl<W: Word> FoldedProduct<W> {
    pub fn new(role: Role, keys: &DrawKeys, shape: MatmulShape) -> Self {
        let sums = MESSAGES.map(|_| vec![W::ZERO; verified_by_product(&shape)]);
        FoldedProduct { shape, challenges: challenges(role, &keys.generators(), shape.columns), sums }
    }

    /// The sums with what this role adds to them.
    pub fn finish(self, role: Role, x: &Arith<W>, y: &Arith<W>, computes: bool) -> [Vec<W>; 2] {
        let FoldedProduct { shape: MatmulShape { batch, rows, inner, columns }, challenges, mut sums } = self;
        if !computes {
            return sums;
        }
        let component = |t: &Arith<W>, component: Component| match component {
            Component::L1 => t.inner.first.data().to_vec(),
            Component::L2 => t.inner.second.data().to_vec(),
            Component::W | Component::Value => t.extra.data().to_vec(),
            Component::Public => t.sum(0..t.len()).to_vec(),
        };
        for message in MESSAGES {
            let (Some(challenge), components) = (&challenges[message], components(role)[message]) else { continue };
            // l·B times w or V, and w'·B or V'·B times l; X times Y'·B.
            for (index, &right) in components.iter().enumerate() {
                let left = components[components.len() - 1 - index];
                let (left, right) = (component(x, left), component(y, right));
                for matrix in 0..batch {
                    let right = &right[matrix * inner * columns..(matrix + 1) * inner * columns];
                    let mut folded = vec![W::ZERO; inner * COLUMNS];
                    gemm(inner, COLUMNS, columns, right, challenge, &mut folded);
                    elementwise::neg_assign(&mut folded);
                    let left = &left[matrix * rows * inner..(matrix + 1) * rows * inner];
                    let sum = &mut sums[message][matrix * rows * COLUMNS..(matrix + 1) * rows * COLUMNS];
                    gemm(rows, COLUMNS, inner, left, &folded, sum);
                }
            }
        }
        sums
    }
}

impl<W: Word> Fold<W> for FoldedProduct<W> {
    fn take(&mut self, piece: usize, message: usize, words: &mut [W]) {
        let Some(challenge) = &self.challenges[message] else { return };
        let columns = self.shape.columns;
        let first = piece * piece_of(&self.shape) / columns.max(1);
        let rows = words.len() / columns.max(1);
        let sum = &mut self.sums[message][first * COLUMNS..(first + rows) * COLUMNS];
        gemm(rows, COLUMNS, columns, words, challenge, sum);
    }
}
