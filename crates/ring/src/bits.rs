//! Bit planes: the bitsliced form of a tensor of small values.

/// `planes` bit planes over `len` elements, plane-major: bit `p` of element `i` is bit `i % 64` of word
/// `p * words_per_plane + i / 64`. Bits past `len` in a plane's last word are undefined between local operations.
///
/// Not `Debug`: planes may be shares.
#[derive(Clone, PartialEq, Eq)]
pub struct BitTensor {
    len: usize,
    planes: usize,
    words: Vec<u64>,
}

impl BitTensor {
    /// Words one plane of `len` elements takes.
    pub fn words_per_plane(len: usize) -> usize {
        len.div_ceil(64)
    }

    /// All zero.
    pub fn zeros(len: usize, planes: usize) -> Self {
        BitTensor { len, planes, words: vec![0; Self::words_per_plane(len) * planes] }
    }

    /// Planes over `words`, which hold `planes * words_per_plane(len)` words.
    pub fn new(len: usize, planes: usize, words: Vec<u64>) -> Self {
        assert_eq!(words.len(), Self::words_per_plane(len) * planes);
        BitTensor { len, planes, words }
    }

    /// One plane from booleans.
    pub fn from_bools(bits: &[bool]) -> Self {
        let mut out = Self::zeros(bits.len(), 1);
        for (index, &bit) in bits.iter().enumerate() {
            out.words[index / 64] |= u64::from(bit) << (index % 64);
        }
        out
    }

    /// Number of elements (bits per plane).
    pub fn len(&self) -> usize {
        self.len
    }

    /// No elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of planes.
    pub fn planes(&self) -> usize {
        self.planes
    }

    /// The words of plane `plane`.
    pub fn plane(&self, plane: usize) -> &[u64] {
        let width = Self::words_per_plane(self.len);
        &self.words[plane * width..(plane + 1) * width]
    }

    /// The words of plane `plane`, mutable.
    pub fn plane_mut(&mut self, plane: usize) -> &mut [u64] {
        let width = Self::words_per_plane(self.len);
        &mut self.words[plane * width..(plane + 1) * width]
    }

    /// All words, plane-major.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// All words, plane-major, mutable.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Bit `plane` of element `index`.
    pub fn get(&self, plane: usize, index: usize) -> bool {
        assert!(index < self.len);
        self.plane(plane)[index / 64] >> (index % 64) & 1 == 1
    }

    /// `f` of every word of two tensors of equal size.
    pub fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        assert!(self.len == other.len && self.planes == other.planes);
        let words = self.words.iter().zip(&other.words).map(|(&x, &y)| f(x, y)).collect();
        BitTensor { words, ..*self }
    }

    /// `f` of every word.
    pub fn map(&self, f: impl Fn(u64) -> u64) -> Self {
        BitTensor { words: self.words.iter().map(|&x| f(x)).collect(), ..*self }
    }
}
