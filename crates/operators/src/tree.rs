//! One level of a tree that combines neighbours.

use covey_protocols::Protocol;
use covey_protocols::api::Result;

use crate::indexing::gather_runs;

/// `count` rows of `width` elements, flat, cut into the even rows, the odd rows, and a last row without a partner.
pub(crate) struct Pairs<A> {
    pub even: A,
    pub odd: A,
    pub rest: Option<A>,
}

/// Cuts `x`; the order of the rows is kept, so row i of a level stands for a run of rows before those of row i + 1.
pub(crate) fn pairs<P: Protocol + ?Sized>(
    protocol: &mut P,
    x: &P::Arith,
    count: usize,
    width: usize,
) -> Result<Pairs<P::Arith>> {
    let half = count / 2;
    let mut rows = |first: usize| gather_runs(protocol, x, (0..half).map(|row| (first + 2 * row) * width), width);
    let (even, odd) = (rows(0)?, rows(1)?);
    let rest = match count % 2 {
        0 => None,
        _ => Some(gather_runs(protocol, x, std::iter::once((count - 1) * width), width)?),
    };
    Ok(Pairs { even, odd, rest })
}

/// The combined rows with the one that had no partner behind them.
pub(crate) fn rejoin<P: Protocol + ?Sized>(
    protocol: &mut P,
    rows: P::Arith,
    rest: Option<&P::Arith>,
) -> Result<P::Arith> {
    match rest {
        Some(rest) => protocol.concat(&[&rows, rest]),
        None => Ok(rows),
    }
}
