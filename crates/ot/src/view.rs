//! Runs of correlated OTs as each side holds them.

use std::ops::Range;

use covey_kernels::hash::HashKey;
use covey_kernels::{Block, lowest_bits};
use covey_store::wipe;
use zeroize::Zeroize;

/// The sender's view of a run of correlated OTs. Not `Debug`: it is secret.
#[derive(Clone, Copy)]
pub struct Sent<'a> {
    /// Lowest bit 1.
    pub delta: Block,
    /// The public value of the instance's hash.
    pub key: HashKey,
    /// The number of the first OT in its instance.
    pub first: u64,
    /// K of each OT; lowest bit 0.
    pub blocks: &'a [Block],
}

/// The receiver's view of a run of correlated OTs. Not `Debug`: it is secret.
#[derive(Clone, Copy)]
pub struct Received<'a> {
    /// The public value of the instance's hash.
    pub key: HashKey,
    /// The number of the first OT in its instance.
    pub first: u64,
    /// T = K ⊕ r·Δ of each OT; r is the lowest bit.
    pub blocks: &'a [Block],
}

impl<'a> Sent<'a> {
    /// How many OTs.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Some of them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn range(&self, range: Range<usize>) -> Sent<'a> {
        Sent { first: self.first + range.start as u64, blocks: &self.blocks[range], ..*self }
    }
}

impl<'a> Received<'a> {
    /// How many OTs.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Some of them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn range(&self, range: Range<usize>) -> Received<'a> {
        Received { first: self.first + range.start as u64, blocks: &self.blocks[range], ..*self }
    }

    /// The random bits r as a plane; bits past the last are zero.
    pub fn choices(&self, plane: &mut [u64]) {
        lowest_bits(plane, self.blocks);
    }

    /// The message that turns the random bits into the `choice` of the receiver: `out = choice ⊕ r`. Uniform to the sender.
    ///
    /// # Panics
    /// If the planes do not hold one bit an OT.
    pub fn correction(&self, choice: &[u64], out: &mut [u64]) {
        self.choices(out);
        covey_kernels::bits::xor_assign(out, choice);
    }
}

macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $view:ident { $($field:ident: $type:ty),* }) => {
        $(#[$doc])*
        pub struct $name {
            $($field: $type,)*
            key: HashKey,
            first: u64,
            blocks: Vec<Block>,
        }

        impl $name {
            /// From their parts; see the fields of the view.
            pub fn new($($field: $type,)* key: HashKey, first: u64, blocks: Vec<Block>) -> Self {
                $name { $($field,)* key, first, blocks }
            }

            /// All of them.
            pub fn view(&self) -> $view<'_> {
                $view { $($field: self.$field,)* key: self.key, first: self.first, blocks: &self.blocks }
            }

            /// How many OTs.
            pub fn len(&self) -> usize {
                self.blocks.len()
            }

            /// None.
            pub fn is_empty(&self) -> bool {
                self.blocks.is_empty()
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                $(self.$field.zeroize();)*
                wipe(&mut self.blocks);
            }
        }
    };
}

owned! {
    /// Correlated OTs a sender owns; wiped on drop. Not `Debug`.
    SentBlocks, Sent { delta: Block }
}

owned! {
    /// Correlated OTs a receiver owns; wiped on drop. Not `Debug`.
    ReceivedBlocks, Received {}
}
