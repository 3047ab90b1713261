//! Damage to bytes, whatever they mean.

use super::INTERESTING;
use crate::rng::Rng;

/// `input` with one to four changes; `other` is what stretches are taken from.
pub fn damage(rng: &mut Rng, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..1 + rng.below(4) {
        change(rng, &mut out, other);
    }
    out
}

fn change(rng: &mut Rng, out: &mut Vec<u8>, other: &[u8]) {
    if out.is_empty() {
        out.extend(stretch(rng, other));
        return;
    }
    let at = rng.below(out.len());
    let length = 1 + rng.size((out.len() - at).min(64)).min(out.len() - at - 1);
    match rng.below(9) {
        0 | 1 => out[at] ^= 1 << rng.below(8),
        2 => out[at] = rng.next() as u8,
        3 => out[at..at + length].iter_mut().for_each(|byte| *byte = rng.next() as u8),
        4 => _ = out.drain(at..at + length),
        5 => out.truncate(at),
        6 => {
            let piece = stretch(rng, other);
            out.splice(at..at, piece);
        }
        7 => {
            let piece = out[at..at + length].to_vec();
            out.splice(at..at, piece);
        }
        _ => {
            let width = 1 << rng.below(4);
            let number = rng.pick(&INTERESTING).wrapping_add(rng.below(3) as u64).wrapping_sub(1);
            let bytes = if rng.once_in(2) { number.to_le_bytes() } else { number.swap_bytes().to_le_bytes() };
            let bytes = if rng.once_in(2) { &bytes[..width] } else { &bytes[8 - width..] };
            let end = (at + width).min(out.len());
            out[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }
}

fn stretch(rng: &mut Rng, other: &[u8]) -> Vec<u8> {
    if other.is_empty() {
        return vec![rng.next() as u8];
    }
    let from = rng.below(other.len());
    let length = 1 + rng.size((other.len() - from).min(256));
    other[from..(from + length).min(other.len())].to_vec()
}

/// Damage to text that stays text.
pub fn damage_text(rng: &mut Rng, input: &str) -> String {
    const TOKENS: [&str; 14] =
        ["\"", "'", "[", "]", "=", "\n", "\0", "\u{feff}", "-1", "1e400", "nan", "../", "covey:", "\u{202e}é"];
    match rng.below(4) {
        0 => input.chars().map(|c| if rng.once_in(8) { char::from(33 + rng.below(94) as u8) } else { c }).collect(),
        1 => String::from_utf8_lossy(&damage(rng, input.as_bytes(), input.as_bytes())).into_owned(),
        2 => {
            let mut lines: Vec<&str> = input.lines().collect();
            if !lines.is_empty() {
                let (at, to) = (rng.below(lines.len()), rng.below(lines.len()));
                match rng.below(3) {
                    0 => _ = lines.remove(at),
                    1 => lines.insert(to, lines[at]),
                    _ => lines.swap(at, to),
                }
            }
            lines.join("\n")
        }
        _ => {
            let starts: Vec<usize> = input.char_indices().map(|(at, _)| at).chain([input.len()]).collect();
            let at = *rng.pick(&starts);
            format!("{}{}{}", &input[..at], rng.pick(&TOKENS), &input[at..])
        }
    }
}
