//! Operations as compositions of others, for protocols that have nothing better.

use covey_ring::Tensor;

use crate::api::{
    Comparison, Epilogue, Layer, LayerOf, Local, Maximum, NonLinear, ProtocolError, Result, Rounding, Shaped, Table,
    Term, TermOf, Truncation,
};
use crate::clip::{Clipped, Ends};
use crate::cost::{Cost, Gate};

/// floor(x · y / 2^bits + 1/2), the half added to the product.
pub(crate) fn mul_to_nearest<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    y: &P::Arith,
    truncation: Truncation,
) -> Result<P::Arith> {
    let product = protocol.mul(x, y, None)?;
    let half = vec![truncation.half(); product.shape().iter().product()];
    let centred = protocol.add_public(&product, &Tensor::new(product.shape(), half))?;
    protocol.truncate(&centred, truncation)
}

/// The maps one by one and their sum, then the shift and the ReLU.
pub(crate) fn linear_sum<P: NonLinear + ?Sized>(
    protocol: &mut P,
    terms: &[TermOf<P>],
    truncation: Truncation,
    relu: Option<Comparison>,
) -> Result<P::Arith> {
    let mut sum: Option<P::Arith> = None;
    for Term { x, weight, bias } in terms {
        let product = protocol.linear(x, weight, &Epilogue { bias: *bias, ..Epilogue::default() })?;
        sum = Some(match sum {
            Some(sum) => protocol.add(&sum, &product)?,
            None => product,
        });
    }
    let sum = sum.ok_or(ProtocolError::Internal("a sum of no linear maps"))?;
    match relu {
        Some(comparison) => protocol.truncate_relu(&sum, truncation, comparison),
        None => protocol.truncate(&sum, truncation),
    }
}

/// Linear maps with what follows each, one after the other.
pub(crate) fn one_by_one<P: NonLinear + ?Sized>(protocol: &mut P, layers: &[LayerOf<P>]) -> Result<Vec<P::Arith>> {
    let one = |&Layer { map: Term { x, weight, bias }, truncation, relu }: &LayerOf<P>| {
        protocol.linear(x, weight, &Epilogue { bias, truncate: Some(truncation), residual: None, relu })
    };
    layers.iter().map(one).collect()
}

/// max(x, 0) by a comparison and a selection.
pub(crate) fn relu<P: NonLinear + ?Sized>(protocol: &mut P, x: &P::Arith, comparison: Comparison) -> Result<P::Arith> {
    let negative = protocol.msb(x, comparison)?;
    let positive = protocol.not(&negative);
    protocol.select(&positive, x)
}

/// x, or max(x, 0) where a comparison is given.
pub(crate) fn then_relu<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: P::Arith,
    relu: Option<Comparison>,
) -> Result<P::Arith> {
    match relu {
        Some(comparison) => protocol.relu(&x, comparison),
        None => Ok(x),
    }
}

/// max(floor(x / 2^bits), 0), the shift first.
pub(crate) fn truncate_relu<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    truncation: Truncation,
    comparison: Comparison,
) -> Result<P::Arith> {
    let shifted = protocol.truncate(x, truncation)?;
    protocol.relu(&shifted, comparison)
}

/// max(x, y) as y + max(x - y, 0), and the plane that is 1 where x < y.
pub(crate) fn max<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: P::Arith,
    y: &P::Arith,
    comparison: Comparison,
) -> Result<(P::Arith, P::Bool)> {
    let difference = difference(protocol, x, y)?;
    let less = protocol.msb(&difference, comparison)?;
    let not_less = protocol.not(&less);
    let gain = protocol.select(&not_less, &difference)?;
    drop(difference);
    Ok((protocol.add(y, &gain)?, less))
}

/// x - y, without x.
pub(crate) fn difference<P: Local + ?Sized>(protocol: &mut P, x: P::Arith, y: &P::Arith) -> Result<P::Arith> {
    protocol.sub(&x, y)
}

/// The last of the values, if there are as many as `maximum` says, of equal shape.
pub(crate) fn last_of<A: Shaped>(values: &[A], maximum: Maximum) -> Result<&A> {
    let equal = values.iter().all(|x| x.shape() == values[0].shape());
    let last =
        values.last().filter(|_| equal && values.len() == maximum.values && Maximum::VALUES.contains(&values.len()));
    last.filter(|_| maximum.relu.is_some() || maximum.truncate.is_none())
        .ok_or(ProtocolError::Internal("the values of a maximum"))
}

/// The largest of several values two by two, then the shift and the ReLU.
pub(crate) fn largest<P: NonLinear + ?Sized>(
    protocol: &mut P,
    values: &[P::Arith],
    maximum: Maximum,
) -> Result<P::Arith> {
    last_of(values, maximum)?;
    let mut values = values.to_vec();
    while values.len() > 1 {
        let mut level = Vec::with_capacity(values.len().div_ceil(2));
        let mut left = values.into_iter();
        while let Some(x) = left.next() {
            level.push(match left.next() {
                Some(y) => protocol.max(x, &y, maximum.differences)?.0,
                None => x,
            });
        }
        values = level;
    }
    rectified(protocol, &values[0], maximum.truncate, maximum.relu)
}

/// x, or max(floor(x / 2^bits), 0) where there is a comparison.
pub(crate) fn rectified<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    truncate: Option<Truncation>,
    relu: Option<Comparison>,
) -> Result<P::Arith> {
    match (truncate, relu) {
        (Some(truncation), Some(comparison)) => protocol.truncate_relu(x, truncation, comparison),
        (None, Some(comparison)) => protocol.relu(x, comparison),
        (_, None) => Ok(x.clone()),
    }
}

/// min(max(x, low), high) as x + max(low - x, 0) - max(x - high, 0): both comparisons side by side.
pub(crate) fn clip<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    ends: Ends,
    comparison: Comparison,
) -> Result<P::Arith> {
    let shape = x.shape().to_vec();
    let count: usize = shape.iter().product();
    let ring = protocol.ring();
    let constant = |value: i128| Tensor::new(shape.clone(), vec![ring.wrap::<P::Word>(value); count]);
    let mut outside = Vec::with_capacity(2);
    if let Some(low) = ends.low {
        let low = protocol.constant(&constant(low.into()));
        outside.push(protocol.sub(&low, x)?);
    }
    if let Some(high) = ends.high {
        outside.push(protocol.add_public(x, &constant(-i128::from(high)))?);
    }
    let all = protocol.concat(&outside.iter().collect::<Vec<_>>())?;
    let excess = protocol.relu(&all, comparison.of_differences(ends))?;
    // What lacks below is added, what exceeds above is taken away.
    let signs = [ends.low.map(|_| 1), ends.high.map(|_| -1)].into_iter().flatten();
    let signs: Vec<P::Word> = signs.flat_map(|sign| vec![ring.wrap(sign); count]).collect();
    let excess = protocol.mul_public(&excess, &Tensor::new([signs.len()], signs))?;
    let correction = match outside.len() {
        1 => excess,
        2 => {
            let by_element: Vec<u32> = (0..count).flat_map(|i| [i as u32, (count + i) as u32]).collect();
            let paired = protocol.gather(&excess, &by_element, &[count, 2])?;
            protocol.sum_last(&paired)?
        }
        _ => return Err(ProtocolError::Internal("a clip without ends")),
    };
    let correction = protocol.reshape(&correction, &shape);
    protocol.add(x, &correction)
}

/// A piecewise linear function: the segment's number by a shift, its line by a lookup, then (slope·u + offset)≫shift, where the
/// offset is what the line has at u = 0.
pub(crate) fn table<P: NonLinear + ?Sized>(protocol: &mut P, x: &P::Arith, table: &Table) -> Result<P::Arith> {
    let table = table.clone().simplified();
    let (ring, shape) = (protocol.ring(), x.shape().to_vec());
    let count: usize = shape.iter().product();
    let low = ring.wrap::<P::Word>(-i128::from(table.low));
    let u = protocol.add_public(x, &Tensor::new(shape, vec![low; count]))?;
    let exact = |bits: u32, bound: u32| Truncation { bits, rounding: Rounding::Exact, bound };
    let index = match table.step {
        0 => None,
        step => Some(protocol.truncate(&u, exact(step, table.index_bits() + step))?),
    };
    let index = index.as_ref().unwrap_or(&u);
    if table.slopes.is_empty() {
        let constants = table.words(ring, |i| table.values[i].into());
        return protocol.lookup(index, &[constants])?.pop().ok_or(ProtocolError::Internal("a lookup"));
    }
    let slopes = table.words(ring, |i| table.slopes[i].into());
    let at_zero = |i: usize| i128::from(table.values[i]) - i128::from(table.slopes[i]) * ((i as i128) << table.step);
    let found = protocol.lookup(index, &[slopes, table.words(ring, at_zero)])?;
    let [slope, offset] = <[_; 2]>::try_from(found).map_err(|_| ProtocolError::Internal("a lookup"))?;
    let product = protocol.mul(&slope, &u, None)?;
    let line = protocol.add(&product, &offset)?;
    match table.shift {
        0 => Ok(line),
        shift => protocol.truncate(&line, exact(shift, table.bound())),
    }
}

/// A piecewise linear function of what is clipped first, as the nodes of a program say it.
pub(crate) fn clip_table<P: NonLinear + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    clipped: Clipped,
    comparison: Comparison,
    table: &Table,
) -> Result<P::Arith> {
    let Clipped { ends, adds_input } = clipped;
    if !adds_input {
        let inside = protocol.clip(x, ends, comparison)?;
        return protocol.table(&inside, table);
    }
    let raised = match ends.low {
        Some(_) => &protocol.clip(x, Ends { high: None, ..ends }, comparison)?,
        None => x,
    };
    // max(x, low) may be as large as either.
    let of_low = ends.low.map_or(0, |low| i64::BITS - low.unsigned_abs().leading_zeros());
    let Comparison { bound, certain } = comparison;
    let of_raised = Comparison { bound: bound.max(of_low), certain: certain.max(of_low) };
    let inside = match ends.high {
        Some(_) => &protocol.clip(raised, Ends { low: None, ..ends }, of_raised)?,
        None => raised,
    };
    let drawn = protocol.table(inside, table)?;
    protocol.add(raised, &drawn)
}

/// What a gate costs that is composed of others, which cost what `of` says. A division costs nothing: protocols that have none of
/// their own refuse it before any plan is asked for.
pub(crate) fn cost(gate: &Gate, of: impl Fn(&Gate) -> Cost) -> Cost {
    let both = |first: Gate, second: Gate| {
        let mut cost = of(&first);
        cost += &of(&second);
        cost
    };
    match *gate {
        Gate::Relu { count, truncate: Some(truncation), comparison } => {
            both(Gate::Truncate { count, truncation }, Gate::Relu { count, truncate: None, comparison })
        }
        Gate::Relu { count, comparison, .. } | Gate::Max { count, comparison } => {
            both(Gate::Msb { count, comparison }, Gate::Select { count })
        }
        // Rectifiers of both ends at once.
        Gate::Clip { count, ends: (low, high), comparison } => {
            let comparison = comparison.of_differences(Ends { low: Some(low), high: Some(high) });
            of(&Gate::Relu { count: 2 * count, truncate: None, comparison })
        }
        _ => Cost::default(),
    }
}
