//! DER, the encoding of certificates and keys.

use super::damage;
use super::tree::{self, Content, Field};
use crate::rng::Rng;

const DEPTH: usize = 12;
/// The bit of a tag that says that fields are inside.
const CONSTRUCTED: u64 = 0x20;

/// Fields changed, added, moved or gone, and every length right again.
pub fn damage_der(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let Some(mut fields) = parse(input, DEPTH) else { return damage(rng, input, other) };
    let donor = parse(other, DEPTH).unwrap_or_default();
    tree::damage(rng, &mut fields, &donor);
    encode(&fields)
}

fn parse(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while let [tag, first, rest @ ..] = bytes {
        let (len, rest) = match usize::from(*first) {
            short @ 0..0x80 => (short, rest),
            long => {
                let (digits, rest) = rest.split_at_checked(long - 0x80).filter(|(digits, _)| digits.len() <= 4)?;
                (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
            }
        };
        let (inside, rest) = rest.split_at_checked(len)?;
        let tag = u64::from(*tag);
        let inner = if tag & CONSTRUCTED != 0 { parse(inside, depth.checked_sub(1)?) } else { None };
        fields.push(Field { tag, content: inner.map_or_else(|| Content::Leaf(inside.to_vec()), Content::Fields) });
        bytes = rest;
    }
    bytes.is_empty().then_some(fields)
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { tag, content } in fields {
        let inside = match content {
            Content::Number(number) => number.to_be_bytes().to_vec(),
            Content::Leaf(leaf) => leaf.clone(),
            Content::Fields(fields) => encode(fields),
        };
        out.push(*tag as u8);
        match inside.len() {
            short @ 0..0x80 => out.push(short as u8),
            long => {
                let digits = long.to_be_bytes();
                let from = digits.iter().position(|digit| *digit != 0).unwrap_or(digits.len() - 1);
                out.push(0x80 | (digits.len() - from) as u8);
                out.extend_from_slice(&digits[from..]);
            }
        }
        out.extend_from_slice(&inside);
    }
    out
}
