//! Protobuf without its schema: what can be read as a message inside a field is taken for one.

use super::tree::{self, Content, Field};
use super::{bytes, damage};
use crate::rng::Rng;

const DEPTH: usize = 12;

/// A message with fields changed, added, moved or gone, and every length right again.
pub fn damage_protobuf(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let Some(mut fields) = parse(input, DEPTH) else { return damage(rng, input, other) };
    let donor = parse(other, DEPTH).unwrap_or_default();
    if rng.once_in(4) {
        change_packed(rng, &mut fields);
    }
    tree::damage(rng, &mut fields, &donor);
    encode(&fields)
}

/// Integers packed into one field: some are made interesting, without breaking the others.
fn change_packed(rng: &mut Rng, fields: &mut [Field]) {
    for field in fields {
        match &mut field.content {
            Content::Fields(fields) => change_packed(rng, fields),
            Content::Leaf(leaf) if rng.once_in(4) => {
                let mut rest = &leaf[..];
                let mut numbers = Vec::new();
                while let Some(number) = varint(&mut rest) {
                    numbers.push(number);
                }
                if rest.is_empty() && !numbers.is_empty() {
                    let at = rng.below(numbers.len());
                    numbers[at] = *rng.pick(&super::INTERESTING);
                    leaf.clear();
                    numbers.iter().for_each(|number| push_varint(leaf, *number));
                } else {
                    *leaf = bytes::damage(rng, leaf, &[]);
                }
            }
            _ => {}
        }
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..10 {
        let byte = *bytes.get(at)?;
        number |= u64::from(byte & 0x7f) << (7 * at as u32).min(63);
        if byte < 0x80 {
            *bytes = &bytes[at + 1..];
            return Some(number);
        }
    }
    None
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn parse(mut bytes: &[u8], depth: usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes).filter(|tag| (8..1 << 12).contains(tag))?;
        let mut take = |len: usize| {
            let (taken, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(taken.to_vec())
        };
        let content = match tag & 7 {
            0 => Content::Number(varint(&mut bytes)?),
            1 => Content::Leaf(take(8)?),
            5 => Content::Leaf(take(4)?),
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let (taken, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                match parse(taken, depth.checked_sub(1)?).filter(|fields| !fields.is_empty()) {
                    Some(fields) => Content::Fields(fields),
                    None => Content::Leaf(taken.to_vec()),
                }
            }
            _ => return None,
        };
        fields.push(Field { tag, content });
    }
    Some(fields)
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    for Field { tag, content } in fields {
        let number = tag & !7;
        match content {
            Content::Number(value) => {
                push_varint(&mut out, number);
                push_varint(&mut out, *value);
            }
            Content::Leaf(leaf) if matches!((tag & 7, leaf.len()), (1, 8) | (5, 4)) => {
                push_varint(&mut out, *tag);
                out.extend_from_slice(leaf);
            }
            Content::Leaf(leaf) => push_bytes(&mut out, number, leaf),
            Content::Fields(fields) => push_bytes(&mut out, number, &encode(fields)),
        }
    }
    out
}

fn push_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    push_varint(out, number | 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_survives_parsing_and_encoding() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/goldens/cnn-32.covey");
        let program = covey_program::Program::read(path).unwrap().to_bytes();
        let payload = &program[40..];
        let fields = parse(payload, DEPTH).unwrap();
        assert!(fields.iter().any(|field| matches!(field.content, Content::Fields(_))));
        assert_eq!(encode(&fields), payload);
        let mut rng = Rng::new(1, "protobuf");
        let changed = (0..100).filter(|_| damage_protobuf(&mut rng, payload, payload) != payload).count();
        assert!(changed > 90, "{changed}");
    }
}
