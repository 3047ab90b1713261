//! Damage to JSON that stays JSON.

use serde_json::{Number, Value};

use super::{INTERESTING, damage_text};
use crate::rng::Rng;

/// One to three changes somewhere in `value`; `other` is what parts are taken from.
pub fn damage_json(rng: &mut Rng, value: &mut Value, other: &Value) {
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(count(other));
        let donor = find(&mut other.clone(), at).clone();
        let at = rng.below(count(value));
        change(rng, find(value, at), donor);
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn count(value: &Value) -> usize {
    1 + children(value).into_iter().map(count).sum::<usize>()
}

/// Number `at` of the values in the tree, itself first.
fn find(value: &mut Value, mut at: usize) -> &mut Value {
    if at == 0 {
        return value;
    }
    at -= 1;
    let counts: Vec<usize> = children(value).into_iter().map(count).collect();
    let mut index = 0;
    while at >= counts[index] {
        at -= counts[index];
        index += 1;
    }
    match value {
        Value::Array(items) => find(&mut items[index], at),
        Value::Object(fields) => find(fields.values_mut().nth(index).expect("as many as were counted"), at),
        _ => unreachable!("only arrays and objects have children"),
    }
}

fn change(rng: &mut Rng, value: &mut Value, donor: Value) {
    if rng.once_in(6) {
        *value = donor;
        return;
    }
    match value {
        Value::Null => *value = Value::from(*rng.pick(&INTERESTING)),
        Value::Bool(bit) => *bit = !*bit,
        Value::Number(number) => *number = other_number(rng, number),
        Value::String(text) => {
            *text = match rng.below(4) {
                0 => String::new(),
                1 => text.repeat(1 + rng.below(40)),
                _ => damage_text(rng, text),
            }
        }
        Value::Array(items) if items.is_empty() => items.push(donor),
        Value::Array(items) => {
            let (at, to) = (rng.below(items.len()), rng.below(items.len()));
            match rng.below(4) {
                0 => _ = items.remove(at),
                1 => items.insert(to, items[at].clone()),
                2 => items.swap(at, to),
                _ => items.insert(to, donor),
            }
        }
        Value::Object(fields) => {
            let name = fields.keys().nth(rng.below(fields.len().max(1))).cloned().unwrap_or_else(|| "name".into());
            let taken = if rng.once_in(2) { fields.remove(&name) } else { fields.get(&name).cloned() };
            if rng.once_in(2) {
                let named = if rng.once_in(2) { name } else { damage_text(rng, &name) };
                fields.insert(named, taken.filter(|_| rng.once_in(2)).unwrap_or(donor));
            }
        }
    }
}

fn other_number(rng: &mut Rng, number: &Number) -> Number {
    match rng.below(5) {
        0 => Number::from(*rng.pick(&INTERESTING)),
        1 => Number::from(-(rng.below(1 << 40) as i64)),
        2 => Number::from_f64(rng.next() as f64 * 1e-3).unwrap_or_else(|| 0.into()),
        3 => Number::from_f64(f64::from_bits(rng.next())).unwrap_or_else(|| 0.into()),
        _ => Number::from(number.as_u64().unwrap_or(0).wrapping_add(rng.below(9) as u64).wrapping_sub(4)),
    }
}
