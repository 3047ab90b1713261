//! What a packing costs: bytes on the wire and work.

/// Prices of messages and work, the same for both parties: they choose alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    /// Bits of an encryption of values.
    pub input_bits: u64,
    /// Bits of a response without its results.
    pub response_bits: u64,
    /// Bits of one result in a response.
    pub result_bits: u64,
    /// Nanoseconds of an encryption, with what the other party does to read it.
    pub encryption_ns: u64,
    /// Nanoseconds of the transform of one polynomial of weights. Tiles of the same weights share it, and a polynomial in X^step
    /// takes the step-th part.
    pub transform_ns: u64,
    /// Nanoseconds of one product of a ciphertext with transformed weights.
    pub product_ns: u64,
    /// Nanoseconds in which a sum of products is masked and flooded, with an encryption of zero added.
    pub sum_ns: u64,
    /// Nanoseconds in which two sums are merged.
    pub merge_ns: u64,
    /// Nanoseconds of a decryption.
    pub decryption_ns: u64,
    /// Bits a second, both directions together, with what the round trips take from it.
    pub bits_per_second: u64,
}

impl Price {
    /// The time in which so many bits are sent.
    pub fn nanoseconds(&self, bits: u64) -> u128 {
        u128::from(bits) * 1_000_000_000 / u128::from(self.bits_per_second.max(1))
    }

    /// The times of single things, messages included.
    pub(super) fn times(&self) -> Times {
        Times {
            input: self.nanoseconds(self.input_bits) + u128::from(self.encryption_ns),
            sum: u128::from(self.sum_ns),
            merge: u128::from(self.merge_ns),
            response: self.nanoseconds(self.response_bits) + u128::from(self.decryption_ns),
            transform: u128::from(self.transform_ns),
            product: u128::from(self.product_ns),
        }
    }
}

/// Nanoseconds of what a packing has several of.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub input: u128,
    pub sum: u128,
    pub merge: u128,
    pub response: u128,
    pub transform: u128,
    pub product: u128,
}

/// How many of what: of a tile or of a whole packing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ciphertexts of values.
    pub inputs: u64,
    /// Sums of products, one polynomial each.
    pub sums: u64,
    /// How often two sums are merged, or one is with nothing.
    pub merges: u64,
    /// Responses.
    pub responses: u64,
    /// Results in all responses, the elements of the output.
    pub results: u64,
    /// Products of a ciphertext and a polynomial of weights.
    pub products: u64,
    /// Different polynomials of weights.
    pub transforms: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.inputs += other.inputs;
        self.sums += other.sums;
        self.merges += other.merges;
        self.responses += other.responses;
        self.results += other.results;
        self.products += other.products;
        self.transforms += other.transforms;
    }

    /// Bits sent up, from the party with the values.
    pub fn bits_up(&self, price: &Price) -> u64 {
        self.inputs * price.input_bits
    }

    /// Bits sent down, to the party with the values.
    pub fn bits_down(&self, price: &Price) -> u64 {
        self.responses * price.response_bits + self.results * price.result_bits
    }

    /// Bits in both directions.
    pub fn bits(&self, price: &Price) -> u64 {
        self.bits_up(price) + self.bits_down(price)
    }
}
