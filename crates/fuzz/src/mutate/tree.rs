//! Damage to a tree of tagged fields, which is what protobuf and DER encode.

use super::{INTERESTING, bytes};
use crate::rng::Rng;

/// A field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What it is, in the encoding's own terms.
    pub tag: u64,
    /// What it holds.
    pub content: Content,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// An integer.
    Number(u64),
    /// Bytes that are not looked into.
    Leaf(Vec<u8>),
    /// Fields.
    Fields(Vec<Field>),
}

/// One to three changes in `fields`; `other` is what fields are taken from.
pub fn damage(rng: &mut Rng, fields: &mut Vec<Field>, other: &[Field]) {
    for _ in 0..1 + rng.below(3) {
        let donor = pick(rng, other).cloned();
        change(rng, fields, donor);
    }
}

fn count(fields: &[Field]) -> usize {
    let below = |field: &Field| match &field.content {
        Content::Fields(fields) => count(fields),
        _ => 0,
    };
    fields.iter().map(|field| 1 + below(field)).sum()
}

/// Any field of the tree.
fn pick<'a>(rng: &mut Rng, fields: &'a [Field]) -> Option<&'a Field> {
    let mut left = rng.below(count(fields).max(1));
    let mut level = fields;
    'down: loop {
        for field in level {
            if left == 0 {
                return Some(field);
            }
            left -= 1;
            if let Content::Fields(fields) = &field.content {
                let inside = count(fields);
                if left < inside {
                    level = fields;
                    continue 'down;
                }
                left -= inside;
            }
        }
        return None;
    }
}

fn change(rng: &mut Rng, fields: &mut Vec<Field>, donor: Option<Field>) {
    if fields.is_empty() {
        fields.extend(donor);
        return;
    }
    // As likely to go down as there are fields below.
    let below: Vec<usize> = (0..fields.len()).filter(|&at| matches!(fields[at].content, Content::Fields(_))).collect();
    if !below.is_empty()
        && rng.below(count(fields)) >= fields.len()
        && let Content::Fields(inner) = &mut fields[*rng.pick(&below)].content
    {
        return change(rng, inner, donor);
    }
    let (at, to) = (rng.below(fields.len()), rng.below(fields.len()));
    match rng.below(8) {
        0 => _ = fields.remove(at),
        1 => fields.insert(to, fields[at].clone()),
        2 => fields.swap(at, to),
        3 => fields[at].tag = fields[at].tag.wrapping_add(rng.below(5) as u64).wrapping_sub(2),
        4 => fields.splice(to..to, donor).for_each(drop),
        5 => {
            if let Some(donor) = donor {
                fields[at].content = donor.content;
            }
        }
        _ => content(rng, &mut fields[at].content),
    }
}

fn content(rng: &mut Rng, content: &mut Content) {
    match content {
        Content::Number(number) => {
            *number = match rng.below(4) {
                0 => *rng.pick(&INTERESTING),
                1 => number.wrapping_add(rng.below(9) as u64).wrapping_sub(4),
                2 => *number ^ 1 << rng.below(64),
                _ => rng.next() >> rng.below(64),
            }
        }
        Content::Leaf(leaf) => {
            *leaf = match std::str::from_utf8(leaf) {
                // Most of what is text must stay text to be looked at.
                Ok(text) if !rng.once_in(4) => bytes::damage_text(rng, text).into_bytes(),
                _ => bytes::damage(rng, leaf, leaf),
            }
        }
        Content::Fields(fields) => {
            let keep = rng.below(fields.len() + 1);
            fields.truncate(keep);
        }
    }
}
