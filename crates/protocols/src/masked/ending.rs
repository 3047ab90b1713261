//! How a product's gate ends: a resharing, a shift, or a shift with the ReLU behind it. A gate may compute several products whose endings
//! are of one form and take the same number of rounds.

use crate::api::{Options, ProtocolError, Result};
use crate::cost::{Cost, Gate};
use crate::linear_map::Follows;
use crate::machine::Layout;

/// How one product ends, with the plan of its ReLU or its shift.
pub(crate) enum Ending<Relu, Shift> {
    Plain,
    Relu(Relu),
    Shift(Shift),
}

/// What decides which products one gate computes.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// The same for endings of one form.
    number: u8,
    rounds: usize,
    tiles: usize,
}

impl Form {
    /// Of a product that ends with this layout, whatever the length of a tile. All forms have in common that the parties which exchange
    /// messages online are done in the last round.
    pub fn new(number: u8, (lens, _): &Ended, options: &Options, layout: impl Fn(usize) -> Layout) -> Self {
        let tiles = super::pieces::tile_lens(lens.iter().copied(), options.tile_size()).count();
        Form { number, rounds: layout(options.tile_size()).rounds(), tiles }
    }
}

/// A tensor that is the result of a product, by the lengths of its pieces, and what follows it.
pub(crate) type Ended = (Vec<usize>, Follows);

/// The plans of all endings, if `plan` has one for each.
pub(crate) fn all<E, P>(endings: &[E], plan: impl Fn(&E) -> Option<P>) -> Option<Vec<P>> {
    endings.iter().map(plan).collect()
}

/// Why a gate cannot end: a defect in the caller.
pub(crate) fn mixed() -> ProtocolError {
    ProtocolError::Internal("a gate of several forms")
}

/// The tiles of the tensors that a gate computes, each named by the tensor's number and its length.
pub(crate) fn tiles(layers: &[Ended], tile: usize) -> impl Iterator<Item = (usize, usize)> {
    let of = move |(number, (lens, _)): (usize, &Ended)| {
        let lens = super::pieces::tile_lens(lens.clone(), tile);
        lens.map(move |len| (number, len)).collect::<Vec<_>>()
    };
    layers.iter().enumerate().flat_map(of)
}

/// The cost of the ReLUs behind products, one after the other.
pub(crate) fn relus(layers: &[Ended], plan: impl Fn(&Gate) -> Cost) -> Cost {
    let mut cost = Cost::default();
    for (lens, (_, relu)) in layers {
        if let &Some(comparison) = relu {
            cost += &plan(&Gate::Relu { count: lens.iter().sum(), truncate: None, comparison });
        }
    }
    cost
}

/// Runs the gates of layers with these forms, by the layers' numbers; returns the results by number.
pub(crate) fn in_gates<T>(
    forms: &[Form],
    options: &Options,
    mut run: impl FnMut(&[usize]) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    let mut results: Vec<Option<T>> = forms.iter().map(|_| None).collect();
    for gate in gates(forms, options) {
        gate.iter().zip(run(&gate)?).for_each(|(&number, result)| results[number] = Some(result));
    }
    results.into_iter().collect::<Option<_>>().ok_or(ProtocolError::Internal("the results of parallel layers"))
}

/// The numbers of layers that one gate computes each: of one form, in the same number of rounds. Their tiles fit in the window together, as
/// more would take further rounds (`cadence.rs`).
pub(crate) fn gates(forms: &[Form], options: &Options) -> Vec<Vec<usize>> {
    let mut gates: Vec<(Form, Vec<usize>)> = Vec::new();
    for (number, form) in forms.iter().enumerate() {
        let fits = |gate: &Form| {
            (gate.number, gate.rounds) == (form.number, form.rounds) && gate.tiles + form.tiles <= options.window
        };
        match gates.iter_mut().find(|(gate, _)| fits(gate)) {
            Some((gate, layers)) => {
                gate.tiles += form.tiles;
                layers.push(number);
            }
            None => gates.push((*form, vec![number])),
        }
    }
    gates.into_iter().map(|(_, layers)| layers).collect()
}
