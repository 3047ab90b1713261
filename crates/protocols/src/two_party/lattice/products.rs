//! Products of two secret matrices. Of (a0 + a1)·(b0 + b1) each party multiplies its own shares; a0·b1 and, transposed, b0ᵀ·a1ᵀ
//! are linear maps of P1's share by P0's, computed side by side. A map's weights may have 34 bits, so that shares of more are cut
//! in two.

use std::sync::Arc;

use covey_kernels::ConvGeometry;
use covey_kernels::conv::im2col;
use covey_ring::{Ring, Word};

use super::exchange::LinearMap;
use super::{Lattice, find, is_faster};
use crate::api::{Geometry, LinearMethod, MatmulShape, Options, Result, WeightKind};
use crate::cost::Cost;
use crate::two_party::share::Arithmetic;
use crate::two_party::{TwoParty, linear};

/// Bits of a share that goes in one piece, its sign included: weights of 34 bits, and a set that hides them.
const WHOLE: u32 = 32;

/// How the two maps of a product are computed.
pub(in crate::two_party) struct Products {
    dims: MatmulShape,
    ring: Ring,
    /// Of a0·b1 and of b0ᵀ·a1ᵀ; the same for each piece of P0's share.
    maps: [Arc<Lattice>; 2],
    /// Bits of a piece, from the lowest.
    piece: u32,
    pieces: u32,
}

/// [units · rows, units · inner, 1, 1] times [units · inner, 1, columns].
fn geometry(units: usize, [rows, inner, columns]: [usize; 3]) -> Geometry {
    Geometry::Conv2d(ConvGeometry {
        in_channels: units * inner,
        out_channels: units * rows,
        groups: units,
        input: [1, columns],
        kernel: [1, 1],
        strides: [1, 1],
        pads: [0; 4],
        dilations: [1, 1],
    })
}

impl Products {
    /// The lattice's way for a product, where the options or its cost call for it.
    pub fn chosen(dims: &MatmulShape, ring: Ring, options: &Options) -> Option<Self> {
        let MatmulShape { batch, rows, inner, columns } = *dims;
        if options.linear == LinearMethod::Ot || [batch, rows, inner, columns].contains(&0) {
            return None;
        }
        let bits = ring.bits();
        let pieces = bits.div_ceil(WHOLE);
        let piece = bits.div_ceil(pieces);
        // Pieces are powers of two apart, which in Z_n are no shifts.
        if pieces > 1 && matches!(ring, Ring::Odd(_)) {
            return None;
        }
        let find = |sizes| find(&geometry(batch, sizes), 1, piece - 1, ring, options);
        let maps = [find([rows, inner, columns])?, find([columns, inner, rows])?];
        let found = Products { dims: *dims, ring, maps, piece, pieces };
        let nanoseconds = found.maps.iter().map(|map| map.nanoseconds).sum::<u128>() * u128::from(pieces);
        let faster = || is_faster(nanoseconds, linear::matmul_shape(dims, ring), options);
        (options.linear == LinearMethod::Lattice || faster()).then_some(found)
    }

    /// The same for a layer whose weight was computed: x times a dense layer's weight, or a convolution's kernels times the patches of all
    /// images.
    pub fn of_layer(
        geometry: &Geometry,
        batch: usize,
        kind: WeightKind,
        ring: Ring,
        options: &Options,
    ) -> Option<Self> {
        let dims = match *geometry {
            _ if kind != WeightKind::Computed => return None,
            Geometry::Dense { inputs, outputs } => {
                MatmulShape { batch: 1, rows: batch, inner: inputs, columns: outputs }
            }
            Geometry::Conv2d(conv) => MatmulShape {
                batch: conv.groups,
                rows: conv.out_channels / conv.groups,
                inner: conv.depth(),
                columns: batch * conv.positions(),
            },
        };
        Products::chosen(&dims, ring, options)
    }

    /// The maps, with the lowest bit of the piece that each multiplies by: a0·b1 of every piece, then the others.
    fn all(&self) -> impl Iterator<Item = (usize, u32)> {
        let pieces = self.pieces;
        (0..2).flat_map(move |direction| (0..pieces).map(move |piece| (direction, piece)))
    }

    fn lattices(&self) -> Vec<&Lattice> {
        self.all().map(|(direction, _)| &*self.maps[direction]).collect()
    }

    /// What both maps exchange.
    pub fn cost(&self, options: &Options) -> Cost {
        super::cost(&self.lattices(), options)
    }

    /// Bytes that each party holds beside operands and result, of words of so many bytes.
    pub fn memory(&self, word: u64, options: &Options) -> [u64; 2] {
        let MatmulShape { batch, rows, inner, columns } = self.dims;
        let elements = batch * (2 * rows * columns * self.pieces as usize + rows * inner);
        let of_maps = self.maps.iter().map(|map| map.memory(options));
        let both = of_maps.fold([0; 2], |sum, bytes| [sum[0] + bytes[0], sum[1] + bytes[1]]);
        both.map(|bytes| bytes * u64::from(self.pieces) + elements as u64 * word)
    }

    /// Piece number `index` of an element, between -2^(piece - 1) and 2^(piece - 1): elements are the sum of their pieces times
    /// 2^(piece · index), modulo 2^l.
    fn piece(&self, element: i64, index: u32) -> i64 {
        match self.pieces {
            1 => element,
            _ => half(element, self.piece, index),
        }
    }
}

/// The lower or the upper of two signed pieces.
fn half(element: i64, piece: u32, index: u32) -> i64 {
    let low = element << (64 - piece) >> (64 - piece);
    if index == 0 { low } else { element.wrapping_sub(low) >> piece }
}

impl<W: Word> TwoParty<W> {
    /// Adds this party's share of both products across to `sum`, of shares a and b of matrices.
    pub(in crate::two_party) fn lattice_matmul(
        &mut self,
        products: &Products,
        a: &[W],
        b: &[W],
        sum: &mut [W],
    ) -> Result<()> {
        let MatmulShape { batch, rows, inner, columns } = products.dims;
        let ring = products.ring;
        self.party.next_gate();
        let transposed = transposed(a, batch, [rows, inner]);
        let pieces: Vec<_> = products.all().collect();
        let weights: Vec<Box<dyn Fn(usize) -> i64 + Sync + '_>> = pieces
            .iter()
            .map(|&(direction, piece)| -> Box<dyn Fn(usize) -> i64 + Sync + '_> {
                match direction {
                    0 => Box::new(move |place| products.piece(ring.signed(a[place]), piece)),
                    // [units, columns, inner] of [units, inner, columns].
                    _ => Box::new(move |place| {
                        let (unit, at) = (place / (columns * inner), place % (columns * inner));
                        let (column, k) = (at / inner, at % inner);
                        products.piece(ring.signed(b[(unit * inner + k) * columns + column]), piece)
                    }),
                }
            })
            .collect();
        let maps: Vec<LinearMap<W>> = pieces
            .iter()
            .zip(&weights)
            .map(|(&(direction, _), weight)| LinearMap {
                lattice: &products.maps[direction],
                weight,
                x: if direction == 0 { b } else { &transposed },
                outputs: sum.len(),
            })
            .collect();
        let Some(across) = self.lattice_maps(&maps, false)? else { return Ok(()) };
        let arithmetic = Arithmetic::new(ring);
        for ((direction, piece), across) in pieces.iter().zip(across) {
            let shift = piece * products.piece;
            let mut add = |at: usize, value: W| {
                let value = if shift == 0 { value } else { value.shl(shift) };
                sum[at] = arithmetic.add(sum[at], value);
            };
            if *direction == 0 {
                across.into_iter().enumerate().for_each(|(at, value)| add(at, value));
                continue;
            }
            for (at, value) in across.into_iter().enumerate() {
                let (unit, within) = (at / (rows * columns), at % (rows * columns));
                add((unit * rows + within % rows) * columns + within / rows, value);
            }
        }
        Ok(())
    }

    /// Adds this party's share of the products across of a layer to `sum`, of its shares of the input and of the computed weight.
    pub(in crate::two_party) fn lattice_layer(
        &mut self,
        products: &Products,
        geometry: &Geometry,
        x: &[W],
        weight: &[W],
        sum: &mut [W],
    ) -> Result<()> {
        let Geometry::Conv2d(conv) = geometry else { return self.lattice_matmul(products, x, weight, sum) };
        let MatmulShape { batch: groups, rows, inner, columns } = products.dims;
        let positions = conv.positions();
        // [groups, inner, images, positions] of one image's [inner, positions] after the other.
        let mut patches = vec![W::ZERO; groups * inner * columns];
        let mut of_image = vec![W::ZERO; inner * positions];
        for (image, x) in x.chunks_exact(conv.input_len().max(1)).enumerate() {
            for group in 0..groups {
                im2col(conv, group, x, &mut of_image);
                for (row, patch) in of_image.chunks_exact(positions.max(1)).enumerate() {
                    let at = (group * inner + row) * columns + image * positions;
                    patches[at..at + positions].copy_from_slice(patch);
                }
            }
        }
        let mut across = vec![W::ZERO; groups * rows * columns];
        self.lattice_matmul(products, weight, &patches, &mut across)?;
        let arithmetic = Arithmetic::new(products.ring);
        let channels = groups * rows;
        for (index, across) in across.chunks_exact(positions.max(1)).enumerate() {
            let (channel, image) = (index / (columns / positions), index % (columns / positions));
            let out = &mut sum[(image * channels + channel) * positions..][..positions];
            out.iter_mut().zip(across).for_each(|(out, &value)| *out = arithmetic.add(*out, value));
        }
        Ok(())
    }
}

/// Matrices the other way round.
fn transposed<W: Word>(x: &[W], units: usize, [rows, columns]: [usize; 2]) -> Vec<W> {
    let size = rows * columns;
    (0..units * size).map(|at| x[at / size * size + at % rows * columns + at % size / rows]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces stay within their bits and add up to the element modulo 2^l.
    #[test]
    fn two_pieces_are_the_element() {
        for bits in [33, 37, 41, 48, 60, 63, 64] {
            let (ring, piece) = (Ring::Pow2(bits), bits.div_ceil(2));
            let (low, high) = ring.signed_range();
            let ends = [low, low + 1, -1, 0, 1, high - 1, high];
            let near = [piece - 1, piece].map(|at| [(1i64 << at) - 1, 1 << at, -(1 << at), -(1 << at) - 1]).concat();
            let mixed = (0..1000i64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64) >> (64 - bits));
            for element in ends.into_iter().chain(near).chain(mixed) {
                let pieces = [0, 1].map(|index| half(element, piece, index));
                assert!(pieces.iter().all(|part| part.unsigned_abs() <= 1 << (piece - 1)), "{element} of {ring}");
                let sum = i128::from(pieces[0]) + (i128::from(pieces[1]) << piece);
                assert_eq!(ring.wrap::<u64>(sum), ring.wrap::<u64>(element.into()), "{element} of {ring}");
            }
        }
    }
}
